//go:build chaos

package robustness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// mostGrown is how many records of grow, 300 MiB, are far more than a snapshot needs, or the disk of smallDisk takes.
const mostGrown = 5_000

// grow has the log grow, until something has happened, however long a busy machine takes. Servers make snapshots of 64 MiB of it. Renewals
// with another value leave no claims in the history.
func (w *world) grow(what string, until func() bool) {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	client := models.NewLocketClient(dial(w.t, w.servers[w.decider()].Address(), w.probes.load.DialOptions()))
	var grown, last atomic.Int64 // the records, and when the last one was written
	last.Store(int64(w.probes.now()))
	var growing sync.WaitGroup
	for n := range 8 {
		growing.Go(func() {
			for ctx.Err() == nil {
				value := strings.Repeat(string(rune('a'+rand.IntN(26))), 60<<10)
				attempt, end := context.WithTimeout(ctx, attemptTimeout)
				resource := &models.Resource{Key: fmt.Sprint("grow-", n), Owner: "grow", Value: value, TypeCode: models.TypeCode_LOCK}
				if _, err := client.Lock(attempt, &models.LockRequest{Resource: resource, TtlInSeconds: int64(claimTTL.Seconds())}); err == nil { // otherwise the next one comes at once
					grown.Add(1)
					last.Store(int64(w.probes.now()))
				}
				end()
			}
		})
	}
	defer growing.Wait()
	defer stop()
	for ; !until(); time.Sleep(time.Millisecond) { // real time: between two looks at a state that may last a few milliseconds
		if grown.Load() > mostGrown || w.probes.now()-time.Duration(last.Load()) > harness.HangTimeout {
			w.t.Fatalf("no %s", what)
		}
	}
}

// snapshots are the files with snapshots of a server; new is one that is being written.
func (w *world) snapshots(n int) (names []string) {
	entries, err := os.ReadDir(filepath.Join(w.data[n], "snapshots"))
	w.must(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// stopInSnapshot stops a server that neither decides nor has etcd's leader, while it writes a snapshot.
func (w *world) stopInSnapshot() func() {
	decider, leader := w.decider(), w.leader()
	n := slices.IndexFunc([]int{0, 1, 2}, func(n int) bool { return n != decider && (w.etcd != nil || n != leader) })
	w.loses(n)
	w.grow("snapshot", func() bool {
		if !slices.Contains(w.snapshots(n), "new") {
			return false
		}
		w.must(w.servers[n].Pause())
		if slices.Contains(w.snapshots(n), "new") {
			return true
		}
		w.must(w.servers[n].Resume()) // it was finished
		return false
	})
	w.pause(long)
	return func() {
		w.must(w.servers[n].Resume())
		harness.Until(w.t, "end of the snapshot", func() bool { return !slices.Contains(w.snapshots(n), "new") })
	}
}

// snapshot returns the number of the last record in the newest snapshot of a server, 0 if there is none.
func (w *world) snapshot(n int) (last uint64) {
	for _, name := range w.snapshots(n) {
		if number, err := strconv.ParseUint(strings.TrimSuffix(name, ".snap"), 16, 64); err == nil {
			last = max(last, number)
		}
	}
	return last
}

// records returns the numbers of the first and the last record of the log.
func (w *world) records() (first, last uint64) {
	w.t.Helper()
	const folder = "/locket/log/"
	for at, order := range map[*uint64]etcd.SortOrder{&first: etcd.SortAscend, &last: etcd.SortDescend} {
		found := insistEtcd(w, w.leader(), func(ctx context.Context, c *etcd.Client) (*etcd.GetResponse, error) {
			return c.Get(ctx, folder, etcd.WithPrefix(), etcd.WithKeysOnly(), etcd.WithLimit(1), etcd.WithSort(etcd.SortByKey, order))
		})
		number, err := strconv.ParseUint(strings.TrimPrefix(string(found.Kvs[0].GetKey()), folder), 10, 64)
		w.must(err)
		*at = number
	}
	return first, last
}

// trimDuringLag stops a server until the log no longer has the next record that it needs. When it starts again it gets the snapshot
// of another server. A server that is merely resumed may have the records already: etcd sends 64 MiB ahead to a watch that nobody reads.
func (w *world) trimDuringLag() func() {
	w.forgetServers()
	n := w.follower() // at the end, claims are compared with the first server's, which its history may not have yet
	w.loses(n)
	w.must(w.servers[n].Pause())
	_, last := w.records()
	after := make(map[int]uint64)
	for _, other := range slices.DeleteFunc([]int{0, 1, 2}, func(other int) bool { return other == n }) {
		after[other] = max(last, w.snapshot(other))
	}
	w.grow("snapshot of the other servers", func() bool {
		for other, record := range after {
			if w.snapshot(other) <= record {
				return false
			}
		}
		return true
	})
	harness.Until(w.t, "trim of the log", func() bool {
		first, _ := w.records()
		return first > last+1
	})
	const received = "the snapshot of another server is received"
	had := strings.Count(w.servers[n].Log(), received)
	return func() {
		w.servers[n].Kill()
		w.again(n)
		w.probes.serve(w.t)
		if strings.Count(w.servers[n].Log(), received) == had {
			w.t.Errorf("server %d has not received the snapshot of another server", n)
		}
	}
}

// forgetServers deletes the announcements of all servers, and waits until the servers that run have announced themselves again. A server
// that was removed, or has lost its folder, would otherwise count for db.MemberAge when the log is trimmed.
func (w *world) forgetServers() {
	w.t.Helper()
	const servers = "/locket/server/"
	insistEtcd(w, w.leader(), func(ctx context.Context, c *etcd.Client) (*etcd.DeleteResponse, error) {
		return c.Delete(ctx, servers, etcd.WithPrefix())
	})
	harness.Until(w.t, "announcements of all servers", func() bool {
		found := insistEtcd(w, w.leader(), func(ctx context.Context, c *etcd.Client) (*etcd.GetResponse, error) {
			return c.Get(ctx, servers, etcd.WithPrefix(), etcd.WithCountOnly())
		})
		return found.Count == 3
	})
}

// smallDisk is a disk for the data of the last member of etcd, which fillMember fills. It has room for a database at the quota
// and the copy that defragmentation makes, and for all that etcd writes ahead during a round.
func (w *world) smallDisk() (folder string) {
	w.t.Helper()
	folder = filepath.Join(w.folder, "small")
	w.must(os.Mkdir(folder, 0o700))
	w.must(syscall.Mount("locket-chaos", folder, "tmpfs", 0, fmt.Sprint("size=", 6*quota)))
	w.t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	return folder
}

// fillMember fills the disk of a member of etcd until the member ends. Then somebody makes room, starts it again, and does what
// docs/cluster.md says.
func (w *world) fillMember() func() {
	const last = 2
	ballast := filepath.Join(w.folder, "small", "ballast")
	file, err := os.Create(ballast)
	w.must(err)
	for part := make([]byte, 1<<20); err == nil; {
		_, err = file.Write(part)
	}
	if w.must(file.Close()); !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatal(err)
	}
	w.grow("end of the member", func() bool {
		_, err := askEtcd(w, last, func(ctx context.Context, c *etcd.Client) (*etcd.StatusResponse, error) {
			return c.Status(ctx, c.Endpoints()[0])
		})
		return err != nil
	})
	w.pause(long)
	return func() {
		w.must(os.Remove(ballast))
		w.must(w.etcd.Members[last].Kill()) // if it only hangs
		w.must(w.etcd.Members[last].Start())
		w.freeEtcd()
	}
}

// fillQuota has other data fill etcd up to its quota. Then somebody deletes that, and does what docs/cluster.md says.
func (w *world) fillQuota() func() {
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	for n, full := 0, false; !full; n++ {
		_, err := askEtcd(w, w.leader(), func(ctx context.Context, c *etcd.Client) (*etcd.PutResponse, error) {
			return c.Put(ctx, fmt.Sprintf("other/%06d", n), value)
		})
		if full = errors.Is(err, rpctypes.ErrNoSpace); !full && n > 2*quota>>20 {
			w.t.Fatalf("etcd took %d MiB: %v", n, err)
		}
	}
	w.pause(long)
	return w.freeEtcd
}

// freeEtcd deletes the other data, compacts and defragments etcd, and disarms the alarm.
func (w *world) freeEtcd() {
	w.t.Helper()
	leader := w.leader()
	deleted := insistEtcd(w, leader, func(ctx context.Context, c *etcd.Client) (*etcd.DeleteResponse, error) {
		return c.Delete(ctx, "other/", etcd.WithPrefix())
	})
	insistEtcd(w, leader, func(ctx context.Context, c *etcd.Client) (*etcd.CompactResponse, error) {
		return c.Compact(ctx, deleted.Header.GetRevision(), etcd.WithCompactPhysical())
	}, rpctypes.ErrCompacted)
	harness.Eventually(w.t, func() error {
		for n := range w.etcds {
			_, err := askEtcd(w, n, func(ctx context.Context, c *etcd.Client) (*etcd.DefragmentResponse, error) {
				return c.Defragment(ctx, c.Endpoints()[0])
			})
			if err != nil {
				return err
			}
		}
		_, err := askEtcd(w, leader, func(ctx context.Context, c *etcd.Client) (*etcd.AlarmResponse, error) {
			return c.AlarmDisarm(ctx, &etcd.AlarmMember{})
		})
		if err != nil {
			return err
		}
		left, err := askEtcd(w, leader, func(ctx context.Context, c *etcd.Client) (*etcd.AlarmResponse, error) { return c.AlarmList(ctx) })
		if err == nil && len(left.Alarms) > 0 {
			err = fmt.Errorf("the alarm is raised again: %v", (*pb.AlarmResponse)(left))
		}
		return err
	})
}
