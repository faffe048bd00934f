//go:build chaos

package robustness_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chaosReport has how often each kind of fault came, how long clients waited, and how many calls were answered in each slice of time.
type chaosReport struct {
	began time.Time
	only  *regexp.Regexp // the faults that come
	turn  map[where]int

	mu     sync.Mutex
	slices []chaosSlice
}

// chaosSlice is a part of the time.
type chaosSlice struct {
	calls  int
	faults []string
}

// sliceTime is the length of a slice.
const sliceTime = 10 * time.Second

// next returns the kind of fault whose turn it is in some clusters.
func (r *chaosReport) next(is where) *kind {
	if r.turn == nil {
		r.turn = make(map[where]int)
	}
	for {
		k := &kinds[r.turn[is]%len(kinds)]
		if r.turn[is]++; r.takes(k, is) {
			return k
		}
	}
}

// takes reports whether a kind of fault comes in some clusters, and has whether any does.
func (r *chaosReport) takes(k *kind, is where) bool {
	return k.is&is != 0 && r.only.MatchString(k.name)
}

// has is described with takes.
func (r *chaosReport) has(is where) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool { return r.takes(&k, is) })
}

func (r *chaosReport) add(k *kind, longest time.Duration) { k.waits = append(k.waits, longest) }

// at returns the slice of this moment. The caller has mu.
func (r *chaosReport) at() *chaosSlice {
	n := int(time.Since(r.began) / sliceTime) // real time: of the report
	for len(r.slices) <= n {
		r.slices = append(r.slices, chaosSlice{})
	}
	return &r.slices[n]
}

// served notes that a call was answered, and mark that a fault was injected.
func (r *chaosReport) served() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at().calls++
}

// mark is described with served.
func (r *chaosReport) mark(fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at()
	s.faults = append(s.faults, fault)
}

// print writes the report, and fails the test if a whole run lacks faults.
func (r *chaosReport) print(t *testing.T, whole bool) {
	var text strings.Builder
	total := 0
	fmt.Fprintf(&text, "%-60s %5s %9s %9s\n", "fault", "times", "median", "longest")
	for _, k := range kinds {
		total += len(k.waits)
		if len(k.waits) == 0 {
			if whole {
				t.Errorf("this fault was never injected: %s", k.name)
			}
			continue
		}
		slices.Sort(k.waits)
		fmt.Fprintf(&text, "%-60s %5d %9v %9v\n", k.name, len(k.waits), k.waits[len(k.waits)/2].Round(time.Millisecond), k.waits[len(k.waits)-1].Round(time.Millisecond))
	}
	fmt.Fprintf(&text, "%d faults. Longest time that a client of a server that was not the victim waited for a lock and its release, with repetitions.\n\n", total)
	if whole && total < 200 {
		t.Errorf("only %d faults", total)
	}
	r.plot(&text)
	file, err := os.CreateTemp("", "locket-chaos-*.txt") //nolint:usetesting // it stays
	if err == nil {
		_, err = file.WriteString(text.String())
	}
	if err != nil {
		t.Error(err)
		return
	}
	_ = file.Close()
	t.Logf("\n%s\nthe report: %s", text.String(), file.Name())
}

// plot draws how many calls were answered in each slice of time.
func (r *chaosReport) plot(text *strings.Builder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	most := 1
	for _, s := range r.slices {
		most = max(most, s.calls)
	}
	for n, s := range r.slices {
		const width = 40
		bar := strings.Repeat("#", (s.calls*width+most-1)/most)
		fmt.Fprintf(text, "%6v %6.1f/s %-*s %s\n", time.Duration(n)*sliceTime, float64(s.calls)/sliceTime.Seconds(), width, bar, strings.Join(s.faults, "; "))
	}
}
