package lock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// The tests here are of real processes over real sockets, and by the real clock. Their
// bounds have slack, as the machine may be busy; what must never happen has none.
const (
	processTTL   = 3 * time.Second
	processRetry = 500 * time.Millisecond
	// safeTTL is for locks that must not be lost, and whose lease nobody waits for.
	safeTTL = 15 * time.Second
	// slack is added to what a promise says.
	slack = 3 * time.Second
)

// startSQLite starts a server with a file in memory, which outlives it: a disk that others
// keep busy would keep it from its work for longer than a lease.
func startSQLite(t *testing.T) *fixtures.Locket {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "locket-lock-") //nolint:usetesting // not where temporary files are
	if err == nil {
		t.Cleanup(func() { must(t, os.RemoveAll(folder)) })
	} else {
		folder = t.TempDir()
	}
	return fixtures.StartLocket(t, "sqlite:"+filepath.Join(folder, "locket.db"))
}

func processPlan(owner string, ttl time.Duration, addresses ...string) memberPlan {
	return memberPlan{Key: "k", Owner: owner, Addresses: addresses, TTL: ttl, Retry: processRetry}
}

// planner returns the plan of a member.
type planner func(owner string, ttl time.Duration, addresses ...string) memberPlan

// onBothEngines runs a test with members that renew by calls, and with members that hold by a session.
func onBothEngines(t *testing.T, test func(t *testing.T, plan planner)) {
	t.Helper()
	t.Parallel()
	for name, session := range map[string]bool{"calls": false, "session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(owner string, ttl time.Duration, addresses ...string) memberPlan {
				plan := processPlan(owner, ttl, addresses...)
				plan.Session = session
				return plan
			})
		})
	}
}

// startPair starts one member that holds the lock and one that waits for it.
func startPair(t *testing.T, holder, waiter memberPlan) (a, b *member) {
	t.Helper()
	a = startMember(t, holder)
	a.await(memberBeat, 0)
	b = startMember(t, waiter)
	b.await(memberFailed, 0)
	return a, b
}

// within fails the test if something took longer than is promised, and slack.
func within(t *testing.T, what string, took, promised time.Duration) {
	t.Helper()
	t.Logf("%s: %v, of %v", what, took, promised)
	if took > promised+slack {
		t.Errorf("%s took %v; promised is %v", what, took, promised)
	}
}

// TestProcessServerRestarts: a server that is killed again and again, and down for less than
// the lease, costs nobody the lock.
func TestProcessServerRestarts(t *testing.T) { onBothEngines(t, testProcessServerRestarts) }

func testProcessServerRestarts(t *testing.T, plan planner) {
	server := startSQLite(t)
	a, b := startPair(t, plan("a", safeTTL, server.Address()), plan("b", safeTTL, server.Address()))
	for round := range 6 {
		server.Kill()
		time.Sleep(time.Duration(round) * 200 * time.Millisecond)
		must(t, server.Start())
		a.await(memberRenewed, sinceBoot())
	}
	a.kept()
	signalled := a.signal(syscall.SIGTERM)
	a.ends(0)
	within(t, "the hand-over after all restarts", b.await(memberBeat, 0).after-signalled, processRetry)
	b.signal(syscall.SIGTERM)
	b.ends(0)
	checkMembers(t, 2, a, b)
}

// TestProcessServerStaysDown: the lock is lost when the lease is over, though the server
// cannot say so and the runner is busy, and somebody has it soon after the server is back.
// Its downtime does not count for it, so that it keeps to the lease of the first for a while.
func TestProcessServerStaysDown(t *testing.T) { onBothEngines(t, testProcessServerStaysDown) }

func testProcessServerStaysDown(t *testing.T, plan planner) {
	server := startSQLite(t)
	stalling := plan("a", processTTL, server.Address())
	stalling.Stall = processTTL
	a, b := startPair(t, stalling, plan("b", processTTL, server.Address()))
	server.Kill()
	killed := sinceBoot()
	a.ends(1)
	beats := a.told(memberBeat)
	if last := beats[len(beats)-1]; last.before > killed+processTTL {
		t.Errorf("was within its trust window for %v without a server", last.before-killed)
	}
	must(t, server.Start())
	back := sinceBoot()
	within(t, "after the server was back, the hand-over", b.await(memberBeat, 0).after-back, processTTL+processRetry)
	b.signal(syscall.SIGTERM)
	b.ends(0)
	checkMembers(t, 2, a, b)
}

// TestProcessStopped: one that is stopped for longer than its lease has a successor, and
// knows that from the first moment after it is resumed. A shorter stop does not lose the lock.
func TestProcessStopped(t *testing.T) { onBothEngines(t, testProcessStopped) }

func testProcessStopped(t *testing.T, plan planner) {
	server := startSQLite(t)
	a, b := startPair(t, plan("a", processTTL, server.Address()), plan("b", processTTL, server.Address()))
	for range 3 {
		a.signal(syscall.SIGSTOP)
		time.Sleep(300 * time.Millisecond)
		a.signal(syscall.SIGCONT)
		a.await(memberRenewed, sinceBoot())
	}
	a.kept()

	stopped := stop(a)
	others := make([]*member, 4) // whose successors nobody is; what wakes each first is chance
	for i := range others {
		other := plan("other", processTTL, server.Address())
		other.Key = fmt.Sprint(i)
		others[i] = startMember(t, other)
		stop(others[i])
	}
	within(t, "the take-over", b.await(memberBeat, 0).after-stopped, processTTL+processRetry)
	time.Sleep(processTTL) // since the last one was stopped
	for _, m := range append(others, a) {
		resumed := m.signal(syscall.SIGCONT)
		within(t, "the end of one that was stopped", m.ends(1).after-resumed, 0)
		didNothing(t, m, resumed)
		m.checkLeases()
	}
	b.await(memberRenewed, sinceBoot())
	b.kept()
	checkMembers(t, 2, a, b)
}

// stop stops a member that holds, while no call is under way, and returns when that was.
func stop(m *member) time.Duration {
	m.t.Helper()
	m.await(memberBeat, 0)
	m.await(memberRenewed, sinceBoot())
	return m.signal(syscall.SIGSTOP)
}

// didNothing fails the test if a member was within its trust window, or called the server, after a
// moment.
func didNothing(t *testing.T, m *member, since time.Duration) {
	t.Helper()
	for _, kind := range []string{memberBeat, memberRenewed, memberFailed, memberOpened} {
		for _, l := range m.told(kind) {
			if l.before >= since {
				t.Errorf("%v after it was resumed %s printed %q", l.before-since, m.plan.Owner, kind)
				break
			}
		}
	}
}

// TestProcessNetworkHangs: the trust window of one whose network swallows everything ends before
// another's begins, also when answers had been slow to come. What the network delivers late
// changes nothing.
func TestProcessNetworkHangs(t *testing.T) { onBothEngines(t, testProcessNetworkHangs) }

func testProcessNetworkHangs(t *testing.T, plan planner) {
	server := startSQLite(t)
	proxy := fixtures.NewProxy(t, server.Address())
	const ttl = 5 * time.Second
	slow := plan("a", ttl, proxy.Addr())
	slow.Delay = time.Second
	a, b := startPair(t, slow, plan("b", ttl, server.Address()))
	a.await(memberRenewed, sinceBoot())
	proxy.Hang()
	hung := sinceBoot()
	within(t, "the take-over", b.await(memberBeat, 0).after-hung, ttl+processRetry)
	a.await(memberLost, 0)
	proxy.Restore()
	a.ends(1)
	b.await(memberRenewed, sinceBoot()+time.Second)
	b.kept()
	checkMembers(t, 2, a, b)
}

// TestProcessConnectionHangs: when one connection only, or the way to one address only,
// swallows everything, the lock is kept.
func TestProcessConnectionHangs(t *testing.T) { onBothEngines(t, testProcessConnectionHangs) }

func testProcessConnectionHangs(t *testing.T, plan planner) {
	const ttl = 8 * time.Second
	for name, way := range map[string]func(hanging, good string) memberPlan{
		"one connection of one address": func(hanging, good string) memberPlan {
			return memberPlan{Addresses: []string{good}, Ways: []string{hanging, good}}
		},
		"one address of two": func(hanging, good string) memberPlan {
			return memberPlan{Addresses: []string{hanging, good}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startSQLite(t)
			proxy := fixtures.NewProxy(t, server.Address())
			first, through := plan("a", ttl), way(proxy.Addr(), server.Address())
			first.Addresses, first.Ways = through.Addresses, through.Ways
			a, b := startPair(t, first, plan("b", ttl, server.Address()))
			time.Sleep(2 * processRetry) // so that there is a connection to either address
			proxy.Hang()
			hung := sinceBoot()
			if !first.Session { // a session may be on the good way already, or be back before anybody has doubts
				failed := a.await(memberFailed, hung).before // when that renewal was sent
				within(t, "in doubt", a.await(memberVerified, hung).after-failed, ttl/3+2*processRetry)
			}
			a.await(memberRenewed, hung+ttl)
			a.kept()
			a.signal(syscall.SIGTERM)
			a.ends(0)
			b.await(memberBeat, 0)
			checkMembers(t, 2, a, b)
		})
	}
}

// TestProcessTwoServers: with two servers on one database the lock is kept while one of them
// is killed, and then the other.
func TestProcessTwoServers(t *testing.T) { onBothEngines(t, testProcessTwoServers) }

func testProcessTwoServers(t *testing.T, plan planner) {
	database := "mysql:" + fixtures.MySQL(t)
	servers := []*fixtures.Locket{fixtures.StartLocket(t, database), fixtures.StartLocket(t, database)}
	addresses := []string{servers[0].Address(), servers[1].Address()}
	a, b := startPair(t, plan("a", safeTTL, addresses...), plan("b", safeTTL, addresses...))
	for _, server := range servers {
		server.Kill()
		for range 3 {
			a.await(memberRenewed, sinceBoot())
		}
		must(t, server.Start())
	}
	a.kept()
	signalled := a.signal(syscall.SIGTERM)
	a.ends(0)
	if took := b.await(memberBeat, 0).after - signalled; took > safeTTL { // the disk may be busy
		t.Errorf("the hand-over took %v", took)
	}
	b.signal(syscall.SIGTERM)
	b.ends(0)
	checkMembers(t, 2, a, b)
}

// TestProcessRollingRestart: the old and the new process of a rolling restart, on one host and
// with the default owner, are never both leader. While both want the lock the old one keeps it.
func TestProcessRollingRestart(t *testing.T) { onBothEngines(t, testProcessRollingRestart) }

func testProcessRollingRestart(t *testing.T, plan planner) {
	server := startSQLite(t)
	members := []*member{startMember(t, plan("", processTTL, server.Address()))}
	members[0].await(memberBeat, 0)
	for i := range 2 {
		next := startMember(t, plan("", processTTL, server.Address()))
		next.await(memberFailed, 0)
		members[i].await(memberRenewed, sinceBoot())
		members[i].kept()
		members[i].signal(syscall.SIGTERM)
		members[i].ends(0)
		next.await(memberBeat, 0)
		members = append(members, next)
	}
	checkMembers(t, len(members), members...)
}

// TestProcessTakeOver: after SIGTERM the next one has the lock within a retry interval,
// after SIGKILL within the TTL and a retry interval.
func TestProcessTakeOver(t *testing.T) { onBothEngines(t, testProcessTakeOver) }

func testProcessTakeOver(t *testing.T, plan planner) {
	const handOvers = 3
	server := startSQLite(t)
	holder, next := startPair(t, plan("0", processTTL, server.Address()), plan("1", processTTL, server.Address()))
	var members []*member
	var took []time.Duration
	for i := range handOvers {
		signalled := holder.signal(syscall.SIGTERM)
		took = append(took, next.await(memberBeat, 0).after-signalled)
		holder.ends(0)
		members = append(members, holder)
		holder, next = next, startMember(t, plan(fmt.Sprint(i+2), processTTL, server.Address()))
		next.await(memberFailed, 0)
	}
	slices.Sort(took)
	t.Logf("from SIGTERM to the next one: %v", took)
	if median := took[handOvers/2]; median > processRetry+time.Second {
		t.Errorf("from SIGTERM to the next one: %v", median)
	}
	killed := holder.signal(syscall.SIGKILL)
	within(t, "from SIGKILL to the next one", next.await(memberBeat, 0).after-killed, processTTL+processRetry)
	members = append(members, holder, next)
	checkMembers(t, len(members), members...)
}
