package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// pairOfServers are two servers on one database.
func pairOfServers(t *testing.T) (a, b *fixtures.Locket) {
	t.Helper()
	database := "mysql:" + harness.MySQL(t)
	return fixtures.StartLocket(t, database), fixtures.StartLocket(t, database)
}

// openAt opens a session that lasts, unless more changes that.
func openAt(t *testing.T, server *fixtures.Locket, name string, more ...func(*models.OpenSession)) *harness.Session {
	t.Helper()
	s := harness.DialSession(t, server.Client(t))
	s.Open(name, append([]func(*models.OpenSession){lasting}, more...)...)
	s.KeepAlive()
	return s
}

// lasting sets the TTL of a session whose end is not tested. A server detaches a client that is silent for half of it, and this process may
// not run for seconds.
var lasting = harness.SessionTTL(10 * 60)

// A session whose server is killed moves to another server, and keeps its locks. A session that is not resumed ends after its TTL, from the last
// beat of that server.
func TestSessionServerKilled(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	const ttl = 10 * time.Second // so long that clients on a busy machine can renew
	moves, lost := openAt(t, a, "moves"), openAt(t, a, "lost", harness.SessionTTL(ttl.Seconds()))
	held := moves.Lock("k", harness.Held)
	lost.Lock("l", harness.Held)
	moves.Lock("l", harness.Waiting)
	other := openAt(t, b, "other")
	other.Lock("k", harness.Waiting)
	other.Lock("l", harness.Waiting)
	heard := time.Now()
	lost.Heartbeat() // its answer comes after a beat that began after it
	a.Kill()
	moves.Ends(codes.Unavailable, "")
	again := harness.DialSession(t, b.Client(t))
	if had := again.Open("moves", lasting, harness.Resume); len(had) != 2 || had[0].GetToken() != held.GetToken() || had[1].GetCurrent() != harness.Waiting {
		t.Errorf("it had %v, and before %v", had, held)
	}
	again.KeepAlive()
	again.Hears("l", harness.Waiting, harness.Held)
	took := time.Since(heard) // real time: no session ends early
	if took < ttl {
		t.Errorf("the session of the killed server ended %s after its last heartbeat", took)
	}
	harness.AtMost(t, "the end of the session of the killed server", took, ttl+2*time.Second)
	again.Quiet()
	other.Quiet()
	again.Unlock("k")
	other.Hears("k", harness.Waiting, harness.Held)
}

// A server that was stopped for longer than the TTL and continued keeps no session alive, and grants no locks of the sessions that it has lost.
func TestSessionServerStopped(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	stale := openAt(t, a, "stale", harness.SessionTTL(10))
	stale.Lock("k", harness.Held)
	moved := openAt(t, a, "moved")
	kept := moved.Lock("m", harness.Held)
	next := openAt(t, b, "next")
	next.Lock("k", harness.Waiting)
	harness.Must(t, a.Pause())
	again := harness.DialSession(t, b.Client(t))
	again.Open("moved", lasting, harness.Resume)
	again.KeepAlive()
	got := next.Hears("k", harness.Waiting, harness.Held)
	heartbeat := stale.Ask(harness.HeartbeatCommand()) // and sends commands, which wait until the server continues
	lock := stale.Ask(harness.LockCommand("n"))
	unlock := stale.Ask(harness.UnlockCommand("k"))
	harness.Must(t, a.Resume())
	moved.EndsFor("SESSION_DETACHED", "SESSION_MOVED")
	stale.EndsFor("SESSION_DETACHED", "SESSION_ENDED")
	for _, told := range stale.Rest {
		switch told.GetSequence() {
		case heartbeat:
			t.Error("the heartbeat of a session that had ended was answered")
		case lock, unlock:
			if told.GetStatus().GetCurrent() == harness.Held {
				t.Errorf("got %v", told)
			}
		}
	}
	late := harness.DialSession(t, a.Client(t))
	late.Ask(harness.OpenRequest("stale", harness.SessionTTL(10), harness.Resume))
	late.Ends(codes.NotFound, "SESSION_ENDED")
	if again := next.Lock("k", harness.Held); again.GetToken() != got.GetToken() {
		t.Errorf("%v, then %v", got, again)
	}
	if mine := again.Lock("m", harness.Held); mine.GetToken() != kept.GetToken() {
		t.Errorf("%v, then %v", kept, mine)
	}
	if queue, err := b.Client(t).GetQueue(t.Context(), &models.GetQueueRequest{Resource: "n"}); err != nil || len(queue.GetHolders()) > 0 {
		t.Errorf("%v (%v)", queue, err)
	}
	fresh := openAt(t, a, "fresh") // the server is registered again, under another name
	fresh.Lock("f", harness.Held)
	fresh.Heartbeat()
}

// A grant by one server reaches a session at the other server within 50 ms in the median, since this machine may be busy.
func TestSessionHandOff(t *testing.T) {
	const (
		rounds = 20
		median = 50 * time.Millisecond
		worst  = time.Second
	)
	serverA, serverB := pairOfServers(t)
	a, b := openAt(t, serverA, "a"), openAt(t, serverB, "b")
	a.Lock("k", harness.Held)
	var took []time.Duration
	for range rounds {
		b.Lock("k", harness.Waiting)
		time.Sleep(60 * time.Millisecond) // real time: the follower is not in the middle of earlier changes
		start := time.Now()
		a.Ask(harness.UnlockCommand("k"))
		b.Hears("k", harness.Waiting, harness.Held)
		took = append(took, time.Since(start)) // real time: for AtMost
		a.Next()
		a, b = b, a
	}
	slices.Sort(took)
	harness.AtMost(t, "UNLOCK at one server to HELD at the other, in the median,", took[rounds/2], median)
	harness.AtMost(t, "the longest", took[rounds-1], worst)
}

// A reset at one server ends the sessions of the other.
func TestSessionResetElsewhere(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	ended, empty, kept := openAt(t, a, "ended"), openAt(t, a, "empty"), openAt(t, a, "kept")
	ended.Lock("k", harness.Held)
	kept.Lock("k", harness.Waiting)
	response, err := b.Client(t).ResetSessions(t.Context(), &models.ResetSessionsRequest{Keep: []string{kept.ID}})
	harness.Must(t, err)
	if response.GetEnded() != 2 {
		t.Errorf("got %v", response)
	}
	kept.Hears("k", harness.Waiting, harness.Held)
	ended.Hears("k", harness.Held, harness.None)
	ended.Ends(codes.NotFound, "SESSION_ENDED")
	empty.Ends(codes.NotFound, "SESSION_ENDED")
}

// A session that two clients use is attached where it was attached last. The stream of the other client ends.
func TestSessionMovedElsewhere(t *testing.T) {
	t.Parallel()
	a, b := pairOfServers(t)
	first := openAt(t, a, "s")
	second := harness.DialSession(t, b.Client(t))
	second.Open("s", lasting, harness.Resume)
	second.KeepAlive()
	first.Ends(codes.Aborted, "SESSION_MOVED")
	second.Lock("k", harness.Held)
	time.Sleep(time.Second) // real time: a late event would come now
	second.Lock("k", harness.Held)
	second.Quiet()
}

// clientEnv names the environment variable with an address. With it this test binary is a client whose session holds "k".
const clientEnv = "ROBUSTNESS_SESSION_AT"

// clientTTL is its TTL, long enough to renew on a busy machine.
const clientTTL = 10 * time.Second

// holdBySession is the client of TestSessionClientKilled, in another process.
func holdBySession(address string) error {
	client, err := lock.NewClient([]string{address}, lock.WithDial(conn.WithInsecure()), lock.WithTTL(clientTTL))
	if err != nil {
		return err
	}
	if _, err := client.Acquire(context.Background(), "k"); err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(time.Hour) // real time: until it is killed
	return nil
}

// When a client was killed by SIGKILL, its locks are granted to the next sessions after its TTL.
func TestSessionClientKilled(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database)
		client := exec.Command(os.Args[0])
		client.Env = append(os.Environ(), clientEnv+"="+server.Address())
		out := &fixtures.Buffer{}
		client.Stdout, client.Stderr = out, out
		harness.Must(t, client.Start())
		t.Cleanup(func() { _ = client.Process.Kill() })
		harness.Eventually(t, func() error {
			if !strings.Contains(out.String(), "held") {
				return errors.New("the client does not hold the lock: " + out.String())
			}
			return nil
		})
		next := openAt(t, server, "next")
		next.Lock("k", harness.Waiting)
		harness.Must(t, client.Process.Kill())
		killed := time.Now()
		_ = client.Wait()
		next.Hears("k", harness.Waiting, harness.Held)
		harness.AtMost(t, "the end of the client's session", time.Since(killed), clientTTL+time.Second)
	})
}

// TestSessionsCauseADeadlock: of two sessions on two servers that cause a deadlock, exactly one learns that its claim
// was aborted, and why. The other one keeps waiting, and gets the resource that the first one releases.
func TestSessionsCauseADeadlock(t *testing.T) {
	t.Parallel()
	first, second := pairOfServers(t)
	rounds := make(map[string]func(*testing.T))
	for round := range 15 {
		rounds[fmt.Sprint(round)] = func(t *testing.T) { sessionsCauseADeadlock(t, first, second, round) }
	}
	harness.AtOnce(t, rounds)
}

func sessionsCauseADeadlock(t *testing.T, first, second *fixtures.Locket, round int) {
	pair := []*harness.Session{openAt(t, first, fmt.Sprint("a", round)), openAt(t, second, fmt.Sprint("b", round))}
	mine := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
	for i, s := range pair {
		s.Lock(mine[i], harness.Held)
	}
	begin := time.Now()
	asked := []uint64{pair[0].Ask(harness.LockCommand(mine[1])), pair[1].Ask(harness.LockCommand(mine[0]))}
	for i, s := range pair {
		s.Stands(s.Answer(asked[i]), mine[1-i], harness.Waiting)
	}
	aborted := -1
	for aborted < 0 && time.Since(begin) < harness.HangTimeout { // real time: for a test that hangs
		aborted = slices.IndexFunc(pair, func(s *harness.Session) bool { return s.Heard(20 * time.Millisecond) })
	}
	if aborted < 0 {
		t.Fatal("nobody was aborted")
	}
	event := pair[aborted].Hears(mine[1-aborted], harness.Waiting, harness.None)
	if e := event.GetError(); e.GetReason() != models.ReasonDeadlock || !strings.Contains(e.GetMetadata()[models.DeadlockKey], pair[1-aborted].ID) {
		t.Errorf("%v", event)
	}
	harness.AtMost(t, "the end of a deadlock", time.Since(begin), 2*time.Second)
	waits := pair[1-aborted]
	waits.Quiet()
	pair[aborted].Unlock(mine[aborted])
	waits.Hears(mine[aborted], harness.Waiting, harness.Held)
	waits.Unlock(mine[aborted])
	waits.Unlock(mine[1-aborted])
	pair[aborted].Quiet()
	waits.Quiet()
}
