package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/models"
)

// millionThree measures three servers with many claims: how long a server takes that gets all of them from another one, the memory of a
// server, and the slowest call of 16 callers while all three servers write snapshots.
func (l *lab) millionThree() (result, error) {
	full := filepath.Join(l.folder, "million-three")
	fmt.Fprintf(os.Stderr, "making %d live and %d finished claims, and a line of %d\n", l.size.claims, l.size.claims, l.size.line)
	if err := replica.Fill(full, func(to backup.Sink) error { return fill(to, l.size) }); err != nil {
		return nil, err
	}
	e, err := l.startThreeFrom("locket", full)
	if err != nil {
		return nil, err
	}
	defer e.stop()
	var folders list
	for _, s := range e.nodes {
		folders = append(folders, s.data)
	}
	found, err := l.run("load-snapshots", e.nodes, "-folder", folders.String(), "-callers", "16", "-connections", "6", "-duration", l.duration.String())
	if err != nil {
		return nil, err
	}
	for _, s := range e.nodes {
		used, err := mebibytes(s.cmd.Process.Pid, "VmRSS")
		if err != nil {
			return nil, err
		}
		found[memory], found[start] = max(found[memory], used), max(found[start], s.took.Seconds())
	}
	return found, nil
}

// loadSnapshots is the role of callers while the log grows, until each server has written a snapshot. It prints how long the slowest call
// took while a server wrote one, and while none did, and how long the slowest snapshot took.
func loadSnapshots(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	w, err := watchSnapshots(f.folders)
	if err != nil {
		return err
	}
	var during, other histogram
	var workers []worker
	for caller := range f.callers {
		workers = append(workers, func(end time.Time, _ *histogram) error {
			return persist(clients[caller%len(clients)], caller, end, func(begin time.Time) {
				took := time.Since(begin)
				if w.last.Load() > begin.UnixNano() {
					during.add(took)
				} else {
					other.add(took)
				}
			})
		})
	}
	if _, err := runAll(workers, f.duration); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	var growing sync.WaitGroup
	growing.Go(func() { grow(ctx, clients[0]) })
	for !w.all() && err == nil {
		if err = ctx.Err(); err == nil {
			_, err = runAll(workers, time.Second)
		}
	}
	stop()
	growing.Wait()
	if err = errors.Join(err, w.err); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d calls beside snapshots, 99.9 %% of them within %.1f ms; %d others, within %.1f ms\n",
		during.count, ms(during.quantile(0.999)), other.count, ms(other.quantile(0.999)))
	return json.NewEncoder(os.Stdout).Encode(result{slowest: ms(during.max), worst: ms(other.max), snapshotTime: w.longest.Seconds()})
}

// grow adds 32 KiB to the log a hundred times a second, so that snapshots are due.
func grow(ctx context.Context, client models.LocketClient) {
	resource := &models.Resource{Key: "grow", Owner: "grow", Value: strings.Repeat("x", 32<<10), TypeCode: models.TypeCode_LOCK}
	for every := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-every.C {
		_, _ = client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60})
		_, _ = client.Release(ctx, &models.ReleaseRequest{Resource: resource})
	}
}

// snapshotWatch looks into the folders of servers for snapshots.
type snapshotWatch struct {
	last atomic.Int64 // when one was being written, in nanoseconds since 1970

	mu      sync.Mutex // guards the following
	waits   map[string]bool
	longest time.Duration
	err     error
}

// watchSnapshots watches some servers until each has written a snapshot.
func watchSnapshots(folders []string) (*snapshotWatch, error) {
	w := &snapshotWatch{waits: make(map[string]bool)}
	for _, folder := range folders {
		folder = filepath.Join(folder, "snapshots")
		w.waits[folder] = true
		before, err := snapshotsIn(folder)
		if err != nil {
			return nil, err
		}
		go w.watch(folder, before)
	}
	return w, nil
}

func snapshotsIn(folder string) (names []string, err error) {
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (w *snapshotWatch) watch(folder string, before []string) {
	var began time.Time
	for {
		names, err := snapshotsIn(folder)
		writes := slices.Contains(names, "new")
		now := time.Now()
		switch {
		case writes:
			if w.last.Store(now.UnixNano()); began.IsZero() {
				began = now
			}
		case err != nil || !slices.Equal(names, before):
			w.mu.Lock()
			delete(w.waits, folder)
			w.longest, w.err = max(w.longest, now.Sub(began)), errors.Join(w.err, err)
			w.mu.Unlock()
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// all reports whether each server has written a snapshot.
func (w *snapshotWatch) all() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waits) == 0
}
