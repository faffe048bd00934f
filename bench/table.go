package main

import (
	"fmt"
	"io"
	"slices"
)

// table collects samples and prints their medians.
type table struct {
	targets []string
	callers []int
	samples map[cell][]sample
}

type cell struct {
	callers int
	target  string
}

func newTable(targets []string) *table {
	return &table{targets: targets, samples: make(map[cell][]sample)}
}

func (t *table) add(callers int, target string, s sample) {
	if !slices.Contains(t.callers, callers) {
		t.callers = append(t.callers, callers)
	}
	at := cell{callers, target}
	t.samples[at] = append(t.samples[at], s)
}

// median returns the sample in the middle by throughput.
func (t *table) median(callers int, target string) sample {
	samples := slices.Clone(t.samples[cell{callers, target}])
	if len(samples) == 0 {
		return sample{}
	}
	slices.SortFunc(samples, func(a, b sample) int { return int(a.PerSecond - b.PerSecond) })
	return samples[len(samples)/2]
}

func (t *table) print(w io.Writer) {
	fmt.Fprintln(w, "| callers | target | operations/s | of the echo | p50 ms | p99 ms |")
	fmt.Fprintln(w, "| ---: | --- | ---: | ---: | ---: | ---: |")
	for _, callers := range t.callers {
		echo := t.median(callers, "echo")
		for _, target := range t.targets {
			s := t.median(callers, target)
			ratio := ""
			if echo.PerSecond > 0 {
				ratio = fmt.Sprintf("%.2f", s.PerSecond/echo.PerSecond)
			}
			fmt.Fprintf(w, "| %d | %s | %.0f | %s | %.2f | %.2f |\n",
				callers, target, s.PerSecond, ratio, ms(s.P50), ms(s.P99))
		}
	}
}
