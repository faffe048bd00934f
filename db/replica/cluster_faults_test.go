package replica_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// inCluster runs a test with some servers. The first one decides.
func inCluster(t *testing.T, servers int, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		defer c.stop()
		for range servers {
			c.add()
		}
		c.servers[0].take("first")
		test(c)
	})
}

// take has a server take a lock.
func (s *server) take(name string) {
	s.c.Helper()
	if err := s.tryTake(name); err != nil {
		s.c.Fatalf("server %d takes %s: %v", s.n, name, err)
	}
}

func (s *server) tryTake(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	outcome, err := db.Transact(ctx, s.store, locks(name, large[:1000]))
	if err == nil {
		err = outcome.Answers[0].Err
	}
	return err
}

// locks is a batch that takes locks, with a value.
func locks(prefix, value string) (b db.Batch) {
	n := 1 + len(value)/1250
	for n := range n {
		b.Requests = append(b.Requests, claim.Request{Command: claim.Acquire{ID: fmt.Sprint(prefix, n), Resource: fmt.Sprint(prefix, n), Owner: "o", TTL: time.Hour, Value: value}})
	}
	return b
}

// large makes the record of locks larger than an entry of the log.
var large = strings.Repeat("v", 50_000)

func (s *server) takeMany(prefix string) {
	s.c.Helper()
	if _, err := db.Transact(s.c.Context(), s.store, locks(prefix, large)); err != nil {
		s.c.Fatalf("server %d: %v", s.n, err)
	}
}

// same reports states that differ. All servers have caught up then.
func (c *cluster) same() {
	c.Helper()
	for _, s := range c.servers {
		if _, err := s.store.Holder(c.Context(), "none"); !errors.Is(err, claim.ErrNotFound) {
			c.Fatalf("server %d: %v", s.n, err)
		}
	}
	for _, s := range c.servers[1:] {
		if string(s.store.Dump()) != string(c.servers[0].store.Dump()) {
			c.Errorf("servers 0 and %d have different states", s.n)
		}
	}
}

// TestSnapshotOfLargeRecords: a snapshot, and what is kept of the log behind it, never begin within a record.
func TestSnapshotOfLargeRecords(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		for n := range 3 {
			c.servers[n%2].takeMany(fmt.Sprint("large", n))
		}
		time.Sleep(time.Minute)
		for _, s := range c.servers {
			if w := s.store.About().Warnings; len(w) > 0 {
				c.Errorf("server %d warns: %v", s.n, w)
			}
			s.stop(s.n == 1)
			s.start()
		}
		c.same()
	})
}

// beats has a server beat until the returned function is called.
func (s *server) beats() (stop func()) {
	enough := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			select {
			case <-enough:
				return
			case <-time.After(db.BeatInterval): // real time: none, clusters run in bubbles
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = s.store.Beat(ctx, false)
				cancel()
			}
		}
	})
	return func() { close(enough); beating.Wait() }
}

// TestDeciderWithoutDisk: when the disk of the decider fails, hangs or is full, another server decides. The one with a
// full disk serves again when there is room.
func TestDeciderWithoutDisk(t *testing.T) {
	for name, fault := range map[string]func(op string) error{
		"failing": func(string) error { return syscall.EIO },
		"full": func(op string) error {
			if strings.HasPrefix(op, "create") {
				return syscall.ENOSPC
			}
			return nil
		},
		"hanging": func(string) error { time.Sleep(time.Minute); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 2, func(c *cluster) {
				decider, other := c.servers[0], c.servers[1]
				stop := decider.beats()
				decider.disk.SetFault(fault)
				var taking sync.WaitGroup
				taking.Go(func() {
					for n := range 40 {
						_ = decider.tryTake(fmt.Sprint("of the decider", n))
					}
				})
				time.Sleep(4 * time.Second)
				if err := other.tryTake("of the other"); err != nil {
					c.Error(err)
				}
				decider.disk.SetFault(nil)
				time.Sleep(4 * time.Minute)
				stop()
				taking.Wait()
				if broken := decider.store.Failure() != nil; broken != (name != "full") {
					c.Errorf("it is broken: %t", broken)
				}
				if name == "full" {
					c.same()
				}
				c.servers = c.servers[1:]
				_ = decider.store.Close() // it is broken
				_ = decider.log.Close()
			})
		})
	}
}

// TestBeatOfAServerThatLeaves: a server that no longer waits for its beat does not depose the decider.
func TestBeatOfAServerThatLeaves(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, epoch := c.servers[0], c.log.Epoch().Number
		beat, err := record.WriteJob(&record.Job{Beat: true})
		if err != nil {
			c.Fatal(err)
		}
		decider.log.Fail(func(string) error { time.Sleep(50 * time.Millisecond); return nil }, nil)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(c.Context(), 20*time.Millisecond)
		defer cancel()
		_, _ = decider.store.CarryOut(ctx, beat)
		decider.take("second")
		if now := c.log.Epoch().Number; now != epoch {
			c.Errorf("epoch %d has begun after epoch %d", now, epoch)
		}
	})
}

// TestDeciderIsMissed: a server whose log is lost again and again finds that the decider is gone.
func TestDeciderIsMissed(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		other := c.servers[1]
		c.servers[0].stop(true)
		enough, cutting := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(cutting)
			for {
				select {
				case <-enough:
					return
				case <-time.After(500 * time.Millisecond): // real time: none, clusters run in bubbles
					other.log.Cut()
				}
			}
		}()
		if err := other.tryTake("second"); err != nil {
			c.Error(err)
		}
		close(enough)
		<-cutting
	})
}

// TestStartWithoutLog: a server that cannot catch up with the log does not start, and says why.
func TestStartWithoutLog(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		s := c.servers[1]
		s.takeMany("large") // its log makes the next segment
		s.stop(false)
		s.log = c.log.Open()
		s.log.Fail(func(op string) error {
			if op == "last" {
				return errNetwork
			}
			return latency(op)
		}, nil)
		store, err := replica.OpenWith(s.folder, replica.Options{SegmentBytes: 8192, Disk: s.disk, Cluster: &replica.Cluster{Log: s.log, Peers: peers{s, 99}}})
		if !errors.Is(err, db.ErrUnavailable) {
			c.Errorf("opened: %v, %v", store, err)
		}
		s.disk = s.disk.Kill()
		s.start()
	})
}

// TestFeedOfLargeRecords: a position in the feed of one server is the same place in the others' feeds, behind records that are
// several entries too, and after a restart.
func TestFeedOfLargeRecords(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		one, other := c.servers[0], c.servers[1]
		one.takeMany("large")
		other.takeMany("larger")
		other.stop(false)
		other.start()
		c.same()
		end, _, err := other.store.End(c.Context(), false)
		if err != nil {
			c.Fatal(err)
		}
		if _, _, err := one.store.End(c.Context(), false); err != nil { // the feed is kept from now on
			c.Fatal(err)
		}
		other.take("second")
		c.same()
		commits, err := one.store.Changes(c.Context(), end, false)
		if err != nil || len(commits) != 1 || len(commits[0].Changes) != 1 {
			c.Errorf("after %v there is %+v (%v)", end, commits, err)
		}
	})
}

// TestFeedOfUnknownOutcomes: commits of a server that its callers were told nothing of come with their changes to its own
// feed: nobody else tells its watchers.
func TestFeedOfUnknownOutcomes(t *testing.T) {
	for of := range 2 {
		t.Run([]string{"the decider's", "another server's"}[of], func(t *testing.T) {
			inCluster(t, 2, func(c *cluster) {
				s := c.servers[of]
				c.same()
				end, _, err := s.store.End(c.Context(), false)
				if err != nil {
					c.Fatal(err)
				}
				c.servers[0].log.Fail(func(op string) error {
					if op == "append" {
						time.Sleep(700 * time.Millisecond)
					}
					return latency(op)
				}, nil)
				ctx, cancel := context.WithTimeout(c.Context(), 500*time.Millisecond)
				defer cancel()
				if _, err := db.Transact(ctx, s.store, locks("late", "")); !errors.Is(err, db.ErrOutcomeUnknown) {
					c.Errorf("the outcome is known: %v", err)
				}
				c.servers[0].log.Fail(latency, nil)
				time.Sleep(time.Second)
				s.take("told")
				c.same()
				commits, err := s.store.Changes(c.Context(), end, false)
				if err != nil || len(commits) != 2 || len(commits[0].Changes) != 1 || len(commits[1].Changes) != 0 {
					c.Errorf("the feed has %d commits: %.500q (%v)", len(commits), fmt.Sprintf("%+v", commits), err)
				}
			})
		})
	}
}

// takeAtOnce has all servers send a batch while a record is under way. before and after are the faults of the
// log for the next one. It returns the error of each server.
func (c *cluster) takeAtOnce(name string, before, after func(op string) error) (told []error) {
	c.Helper()
	decider, wait := c.servers[0], make(chan struct{})
	decider.log.Fail(func(op string) error {
		if op == "append" {
			<-wait
		}
		return latency(op)
	}, nil)
	told = make([]error, len(c.servers))
	var taking sync.WaitGroup
	taking.Go(func() { decider.take("before " + name) })
	synctest.Wait()
	for n, s := range c.servers {
		taking.Go(func() { told[n] = s.tryTake(fmt.Sprint(name, n, " ")) })
	}
	synctest.Wait()
	first := true
	decider.log.Fail(before, func(op string) error {
		if op == "append" && first {
			first = false
			return nil
		}
		return after(op)
	})
	close(wait)
	taking.Wait()
	return told
}

// TestOneRecordForAll: the batches of all servers that wait are one record. The feed of each server has the changes of the
// others.
func TestOneRecordForAll(t *testing.T) {
	inCluster(t, 4, func(c *cluster) {
		c.same()
		var ends []db.Position
		for _, s := range c.servers {
			end, _, err := s.store.End(c.Context(), false)
			if err != nil {
				c.Fatal(err)
			}
			ends = append(ends, end)
		}
		for n, err := range c.takeAtOnce("lock", latency, latency) {
			if err != nil {
				c.Errorf("server %d: %v", n, err)
			}
		}
		c.same()
		for n, s := range c.servers {
			for _, own := range []bool{false, true} {
				commits, err := s.store.Changes(c.Context(), ends[n], own)
				if err != nil || len(commits) != 2 {
					c.Fatalf("the feed of server %d has %d commits (%v)", n, len(commits), err)
				}
				changes := commits[1].Changes
				if own && len(changes) != len(c.servers) || len(commits[1].Others) != len(c.servers)-1 {
					c.Errorf("the feed of server %d has %d changes, %d of others", n, len(changes), len(commits[1].Others))
				}
				for _, change := range commits[1].Others {
					if change.After.ID == fmt.Sprint("lock", n, " 0") {
						c.Errorf("the change of server %d is another's", n)
					}
				}
			}
		}
	})
}

// TestGathering: the decider waits for the servers whose batches were in the last record or waited behind it, and does not wait for
// one caller.
func TestGathering(t *testing.T) {
	inCluster(t, 4, func(c *cluster) {
		decider := c.servers[0]
		slow := func(op string) error {
			if op == "append" {
				time.Sleep(10 * time.Millisecond) // real time: none, clusters run in bubbles
			}
			return latency(op)
		}
		records := func() (n uint64) {
			end, _, err := decider.store.End(c.Context(), true)
			if err != nil {
				c.Fatal(err)
			}
			for _, n = range end {
			}
			return n
		}
		c.takeAtOnce("first", slow, latency)
		decider.log.Fail(slow, nil)
		before := records()
		var taking sync.WaitGroup
		for n, s := range c.servers {
			taking.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond) // real time: none, clusters run in bubbles
				s.take(fmt.Sprint("second", n, " "))
			})
		}
		taking.Wait()
		if made := records() - before; made != 1 {
			c.Errorf("there are %d records", made)
		}
		c.servers[1].take("alone")
		begin := time.Now()
		c.servers[1].take("alone again")
		if took := time.Since(begin); took > 15*time.Millisecond {
			c.Errorf("a single caller waits: %v", took)
		}
		before = records()
		for n, s := range c.servers[1:3] {
			taking.Go(func() {
				time.Sleep(time.Duration(n) * 5 * time.Millisecond) // real time: none, clusters run in bubbles
				for turn := range 4 {
					s.take(fmt.Sprint("turn ", n, turn))
				}
			})
		}
		taking.Wait()
		if made := records() - before; made > 5 {
			c.Errorf("there are %d records of two servers that took turns", made)
		}
		decider.log.Fail(latency, nil)
	})
}

// TestUnknownOutcomeOfMany: when the decider does not learn whether a record is committed, the servers learn from the next decider
// what became of their batches in it. They are carried out once.
func TestUnknownOutcomeOfMany(t *testing.T) {
	failing := func(op string) error {
		if op == "append" || op == "raise" { // otherwise the same server may decide again and again
			return errNetwork
		}
		return latency(op)
	}
	for name, faults := range map[string][2]func(string) error{"lost": {failing, latency}, "committed": {latency, failing}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, 3, func(c *cluster) {
				decider, epoch := c.servers[0], c.log.Epoch().Number
				told := c.takeAtOnce("lock", faults[0], faults[1])
				if !errors.Is(told[0], db.ErrOutcomeUnknown) {
					c.Errorf("the decider: %v", told[0])
				}
				for n := 1; n < len(told); n++ {
					if told[n] != nil {
						c.Errorf("server %d: %v", n, told[n])
					}
				}
				decider.log.Fail(latency, nil)
				c.same()
				if now := c.log.Epoch().Number; now == epoch {
					c.Error("no other server decides")
				}
				holder, err := c.servers[1].store.Holder(c.Context(), "lock0 0")
				if known := err == nil && holder.ID == "lock0 0"; known != (name == "committed") {
					c.Errorf("the decider's lock: %v (%v)", holder, err)
				}
			})
		})
	}
}

// TestManyServers: the table of the last batches has a bound, and all servers drop the same ones. A batch that was dropped is
// not carried out again.
func TestManyServers(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider := c.servers[0]
		batch := func(node uint64) []byte {
			message, err := record.WriteBatch(record.Origin{Node: node, Seq: 1<<49 + node}, locks(fmt.Sprint("of ", node), ""))
			if err != nil {
				c.Fatal(err)
			}
			return message
		}
		const many = 1100
		for node := range uint64(many) {
			if _, err := decider.store.CarryOut(c.Context(), batch(node+1)); err != nil {
				c.Fatal(err)
			}
		}
		if outcome, err := decider.store.CarryOut(c.Context(), batch(1)); !errors.Is(err, replica.ErrOldBatch) {
			c.Errorf("an old batch: %x, %v", outcome, err)
		}
		if _, err := decider.store.CarryOut(c.Context(), batch(many)); err != nil {
			c.Errorf("the last batch again: %v", err)
		}
		known := 0
		for node := range uint64(many) {
			if decider.store.LastBatch(node+1) != 0 {
				known++
			}
		}
		if known != 1024 {
			c.Errorf("there are %d batches", known)
		}
		time.Sleep(time.Second)
		c.servers[1].stop(false)
		c.servers[1].start()
		c.servers[1].take("after all")
		c.same()
	})
}

// TestDeciderIsNotSilent: a server without sessions that looks for silent servers does not find the decider.
func TestDeciderIsNotSilent(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.servers[0], c.servers[1]
		if err := decider.store.Register(c.Context(), "decider"); err != nil {
			c.Fatal(err)
		}
		attach := claim.Attach{Session: claim.Session{ID: "s", Owner: "o", TTL: time.Minute}, Server: "decider"}
		if _, err := db.Transact(c.Context(), decider.store, db.Batch{Requests: []claim.Request{{Command: attach}}}); err != nil {
			c.Fatal(err)
		}
		for range 30 {
			time.Sleep(db.BeatInterval)
			if err := decider.store.Beat(c.Context(), false); err != nil {
				c.Fatal(err)
			}
			if n, err := other.store.DetachSilent(c.Context(), db.ServerTimeout); n != 0 || err != nil {
				c.Fatalf("detached: %d (%v)", n, err)
			}
		}
	})
}

// TestServersThatBeat: the sessions of a server are kept as long as it beats, whoever decides, and not longer.
func TestServersThatBeat(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		decider, other, third := c.servers[0], c.servers[1], c.servers[2]
		if err := other.store.Register(c.Context(), "other"); err != nil {
			c.Fatal(err)
		}
		attach := claim.Attach{Session: claim.Session{ID: "s", Owner: "o", TTL: time.Hour}, Server: "other"}
		if _, err := db.Transact(c.Context(), other.store, db.Batch{Requests: []claim.Request{{Command: attach}}}); err != nil {
			c.Fatal(err)
		}
		beat := func(of *server, want int) {
			stop := of.beats()
			defer stop()
			detached := 0
			for range 16 {
				time.Sleep(db.BeatInterval)
				n, err := third.store.DetachSilent(c.Context(), db.ServerTimeout)
				if detached += n; err != nil {
					c.Fatal(err)
				}
			}
			if detached != want {
				c.Errorf("detached: %d, want %d", detached, want)
			}
		}
		beat(other, 0)
		decider.stop(false)
		beat(other, 0)
		decider.start()
		other.stop(true)
		beat(third, 1)
	})
}

// TestTimeOfADeposedDecider: a server that decided before counts lease time from the records of the decider after it. By its
// own count leases would be due too early, and it would ask again and again to end them.
func TestTimeOfADeposedDecider(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.servers[0], c.servers[1]
		for range 12 { // without a record
			time.Sleep(db.BeatInterval)
			if err := decider.store.Beat(c.Context(), false); err != nil {
				c.Fatal(err)
			}
		}
		decider.log.Pause()
		other.take("second")
		decider.log.Resume()
		c.same()
		for range 4 {
			now, err := other.store.Due(c.Context(), db.DueQuery{Resources: 1})
			if err != nil {
				c.Fatal(err)
			}
			before, err := decider.store.Due(c.Context(), db.DueQuery{Resources: 1})
			if err != nil {
				c.Fatal(err)
			}
			if ahead := before.Now.Lease.Sub(now.Now.Lease); ahead > db.MaxSilence {
				c.Errorf("it is ahead of the decider by %v", ahead)
			}
			time.Sleep(db.BeatInterval)
		}
	})
}

// TestBackupAfterPowerCut: the folder of a server of a cluster can be backed up while the server runs, and after a power cut
// that its log has lost the end in.
func TestBackupAfterPowerCut(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		s, cut, log := c.server(), filepath.Join(t.TempDir(), "cut"), filepath.Join(t.TempDir(), "log")
		s.disk = nil
		s.start()
		s.take("second")
		c.same()
		copied := os.CopyFS(log, os.DirFS(filepath.Join(s.folder, "log")))
		release := claim.Release{Resource: "first0", Owner: "o"}
		if _, err := db.Transact(c.Context(), s.store, db.Batch{Requests: []claim.Request{{Command: release}}}); err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Second) // the history has it, and the log after the power cut has not
		copied = errors.Join(copied, os.CopyFS(cut, os.DirFS(s.folder)), os.RemoveAll(filepath.Join(cut, "log")), os.Rename(log, filepath.Join(cut, "log")))
		if copied != nil {
			c.Fatal(copied)
		}
		for of, want := range map[string]int{s.folder: 1, cut: 2} {
			live := 0
			err := replica.Dump(of, counting(func(*claim.Claim) { live++ }))
			if err != nil || live != want {
				c.Errorf("%s: %d live claims (%v)", of, live, err)
			}
		}
	})
}

// counting is a backup.Sink that gets the live claims.
type counting func(*claim.Claim)

func (counting) Begin(backup.Head) error         { return nil }
func (f counting) Claim(live *claim.Claim) error { f(live); return nil }
func (counting) Session(*claim.Session) error    { return nil }
func (counting) Server(backup.Server) error      { return nil }
func (counting) Row(backup.Row) error            { return nil }
func (counting) Ended(*claim.Claim) error        { return nil }
func (counting) End(backup.Head) error           { return nil }

// TestDeciderWhoseAppendsFail: a decider that cannot append gives up, although its beats are in the log.
func TestDeciderWhoseAppendsFail(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.servers[0], c.servers[1]
		decider.log.Fail(func(op string) error {
			if op == "append" {
				return errNetwork
			}
			return latency(op)
		}, nil)
		stop := decider.beats()
		defer stop()
		err := other.tryTake("second")
		for n := 0; n < 10 && err != nil; n++ { // both try to become the decider
			err = other.tryTake("second")
		}
		if err != nil {
			c.Error(err)
		}
	})
}

// TestBeatsOfADecider: while the decider beats nobody else takes over. A beat fails when the log takes no commits.
func TestBeatsOfADecider(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, epoch := c.servers[0], c.log.Epoch().Number
		stop := decider.beats()
		time.Sleep(5 * time.Second)
		stop()
		if now := c.log.Epoch().Number; now != epoch {
			c.Errorf("epoch %d has begun after epoch %d", now, epoch)
		}
		decider.log.Pause()
		if err := decider.store.Beat(c.Context(), false); !errors.Is(err, db.ErrUnavailable) {
			c.Errorf("a beat without the log: %v", err)
		}
		decider.log.Resume()
	})
}

// TestDeciderThatStops: a decider that is closed says that nobody decides: the next call need not wait until it is missed.
func TestDeciderThatStops(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		c.servers[0].stop(false)
		if e := c.log.Epoch(); len(e.Decider) != 0 {
			c.Errorf("%q decides in epoch %d", e.Decider, e.Number)
		}
	})
}

// silent returns the decider, and another server that is registered and has not beaten for longer than db.ServerTimeout.
func (c *cluster) silent() (decider, other *server) {
	c.Helper()
	decider, other = c.servers[0], c.servers[1]
	if err := other.store.Register(c.Context(), "other"); err != nil {
		c.Fatal(err)
	}
	stop := decider.beats()
	time.Sleep(2 * db.ServerTimeout)
	stop()
	return decider, other
}

// TestServerThatWasGone: a server that was declared gone learns it from its next beat.
func TestServerThatWasGone(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.silent()
		if _, err := decider.store.DetachSilent(c.Context(), db.ServerTimeout); err != nil {
			c.Fatal(err)
		}
		if err := other.store.Beat(c.Context(), false); !errors.Is(err, db.ErrServerGone) {
			c.Errorf("its beat: %v", err)
		}
	})
}

// TestDeadlineAfterNewDecider: the sessions of a server that a new decider has never heard of last as long as the decider before may
// have answered beats that are in no record.
func TestDeadlineAfterNewDecider(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		first, next := c.servers[0], c.servers[1]
		if err := first.store.Register(c.Context(), "first"); err != nil {
			c.Fatal(err)
		}
		attach := claim.Attach{Session: claim.Session{ID: "s", Owner: "o", Secret: make([]byte, 32), TTL: time.Minute}, Server: "first"}
		if _, err := db.Transact(c.Context(), first.store, db.Batch{Requests: []claim.Request{{Command: attach}}}); err != nil {
			c.Fatal(err)
		}
		first.log.Pause()
		for n := 0; n < 10 && next.tryTake("next") != nil; n++ { // until it has become the decider
			time.Sleep(time.Second)
		}
		attached, _, err := next.store.Session(c.Context(), "s")
		if err != nil {
			c.Fatal(err)
		}
		stop := next.beats()
		time.Sleep(2 * db.ServerTimeout)
		stop()
		if _, err := next.store.DetachSilent(c.Context(), db.ServerTimeout); err != nil {
			c.Fatal(err)
		}
		detached, _, err := next.store.Session(c.Context(), "s")
		if least := attached.Attached.Add(time.Minute + db.BeatInterval/2); err != nil || detached.Deadline < least {
			c.Errorf("the deadline is %s too early (%v)", least.Sub(detached.Deadline), err)
		}
		first.log.Resume()
	})
}

// TestBeatWhileDeclaredGone: a beat of a server that is being declared gone is not answered as if it were not: its clients would rely
// on sessions that end earlier than they know.
func TestBeatWhileDeclaredGone(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.silent()
		wait := make(chan struct{})
		decider.log.Fail(func(op string) error {
			if op == "append" {
				<-wait
			}
			return latency(op)
		}, nil)
		var working sync.WaitGroup
		working.Go(func() {
			if _, err := decider.store.DetachSilent(c.Context(), db.ServerTimeout); err != nil {
				c.Error(err)
			}
		})
		synctest.Wait()
		working.Go(func() {
			if err := other.store.Beat(c.Context(), false); !errors.Is(err, db.ErrServerGone) {
				c.Errorf("its beat: %v", err)
			}
		})
		synctest.Wait()
		close(wait)
		working.Wait()
		decider.log.Fail(latency, nil)
	})
}

// TestSlowLog: the batches of other servers wait their turn at a decider whose commits take long, as the decider's own do.
func TestSlowLog(t *testing.T) {
	inCluster(t, 4, func(c *cluster) {
		decider := c.servers[0]
		decider.log.Fail(func(op string) error {
			if op == "append" {
				time.Sleep(700 * time.Millisecond) // real time: none, clusters run in bubbles
			}
			return latency(op)
		}, nil)
		var busy sync.WaitGroup
		for _, s := range c.servers {
			busy.Go(func() {
				for n := range 4 {
					if err := s.tryTake(fmt.Sprint(s.n, " ", n)); err != nil {
						c.Errorf("batch %d of server %d: %v", n, s.n, err)
					}
				}
			})
		}
		busy.Wait()
		decider.log.Fail(latency, nil)
	})
}

// TestDeciderThatWasGone: a decider whose own name was declared gone hears of it in its own beat, also when another server
// has it beat before.
func TestDeciderThatWasGone(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		ctx, decider, other := c.Context(), c.servers[0].store, c.servers[1].store
		if err := decider.Register(ctx, "decider"); err != nil {
			c.Fatal(err)
		}
		if err := other.Register(ctx, "other"); err != nil {
			c.Fatal(err)
		}
		if err := decider.Forget(ctx, "decider"); err != nil {
			c.Fatal(err)
		}
		time.Sleep(db.BeatInterval)
		if err := other.Beat(ctx, false); err != nil {
			c.Errorf("the other server's beat: %v", err)
		}
		if err := decider.Beat(ctx, false); !errors.Is(err, db.ErrServerGone) {
			c.Errorf("the decider's beat: %v", err)
		}
	})
}

// TestFeedOfAFullDecider: a commit whose caller was told that the outcome is unknown, since the decider's disk was full, is
// news to that server's own sessions and waits when there is room.
func TestFeedOfAFullDecider(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		s := c.servers[0]
		position, _, err := s.store.End(c.Context(), false)
		if err != nil {
			c.Fatal(err)
		}
		s.disk.SetFault(func(operation string) error {
			if strings.HasPrefix(operation, "create") {
				return syscall.ENOSPC
			}
			return nil
		})
		unknown := 0
		for n := 0; n < 50 && unknown == 0; n++ {
			if err := s.tryTake(fmt.Sprint("full", n)); errors.Is(err, db.ErrOutcomeUnknown) {
				unknown = n
			}
		}
		if unknown == 0 {
			c.Fatal("no outcome was unknown")
		}
		s.disk.SetFault(nil)
		time.Sleep(5 * time.Second)
		commits, err := s.store.Changes(c.Context(), position, false)
		if err != nil {
			c.Fatal(err)
		}
		news := 0
		for _, commit := range commits {
			for _, change := range commit.Changes {
				if change.After.ID == fmt.Sprintf("full%d0", unknown) {
					news++
				}
			}
		}
		if news == 0 {
			c.Errorf("the commit of claim full%d is no news", unknown)
		}
	})
}
