package lock_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// These tests, and those with the build tag soak, run real processes over real sockets by the real clock, since processes cannot be
// killed and stopped in a bubble. Durations are asserted by make test-timing only; everything else always.
const (
	processTTL   = 8 * time.Second
	processRetry = 500 * time.Millisecond
	// safeTTL is the TTL of locks that must not be lost. No test waits for the end of their leases.
	safeTTL = 15 * time.Second
	// slack is added to each promised duration.
	slack = 3 * time.Second
)

// startEmbedded starts a server that keeps its data when it is started again.
func startEmbedded(t *testing.T) *fixtures.Locket {
	t.Helper()
	return fixtures.StartLocket(t, "embedded:"+filepath.Join(newFolder(t), "data"))
}

func processPlan(owner string, ttl time.Duration, addresses ...string) memberPlan {
	return memberPlan{Key: "k", Owner: owner, Addresses: addresses, TTL: ttl, Retry: processRetry}
}

// planner makes the plan of a member.
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

// within fails if something took longer than promised, plus slack.
func within(t *testing.T, what string, took, promised time.Duration) {
	t.Helper()
	harness.AtMost(t, what, took, promised+slack)
}

// TestProcessStopped: a process that is stopped for longer than its lease loses the lock to the next one, and knows
// that as soon as it resumes. The lock survives a shorter stop.
func TestProcessStopped(t *testing.T) { onBothEngines(t, testProcessStopped) }

func testProcessStopped(t *testing.T, plan planner) {
	server := startEmbedded(t)
	a, b := startPair(t, plan("a", processTTL, server.Address()), plan("b", safeTTL, server.Address()))
	stopped := stop(a)
	others := make([]*member, 2) // nobody waits for their locks; which of their goroutines wakes first is random
	for i := range others {
		other := plan("other", processTTL, server.Address())
		other.Key = fmt.Sprint(i)
		others[i] = startMember(t, other)
		stop(others[i])
	}
	within(t, "the take-over", b.await(memberBeat, 0).after-stopped, processTTL+processRetry)
	over := time.After(processTTL) // real time: the lease of a process that is stopped runs out
	for range 3 {
		b.signal(syscall.SIGSTOP)
		time.Sleep(300 * time.Millisecond) // real time: how long it is stopped
		b.signal(syscall.SIGCONT)
		b.await(memberRenewed, sinceBoot())
	}
	b.kept()
	<-over
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

// stop stops a member that holds the lock, while none of its calls is under way, and returns the time.
func stop(m *member) time.Duration {
	m.t.Helper()
	m.await(memberBeat, 0)
	m.await(memberRenewed, sinceBoot())
	return m.signal(syscall.SIGSTOP)
}

// didNothing fails the test if, after a moment, a member was within its trust window or called the server.
func didNothing(t *testing.T, m *member, since time.Duration) {
	t.Helper()
	for _, kind := range []string{memberBeat, memberRenewed, memberFailed, memberOpened} {
		for _, l := range m.linesOf(kind) {
			if l.before >= since {
				t.Errorf("%v after it was resumed %s printed %q", l.before-since, m.plan.Owner, kind)
				break
			}
		}
	}
}

// TestProcessTakeOver: after a SIGTERM to the holder, the next process holds the lock within a retry interval; after a SIGKILL, within
// the TTL and a retry interval.
func TestProcessTakeOver(t *testing.T) { onBothEngines(t, testProcessTakeOver) }

func testProcessTakeOver(t *testing.T, plan planner) {
	const handOvers = 3
	server := startEmbedded(t)
	planOf := func(n int) memberPlan {
		ttl := safeTTL
		if n == handOvers { // it is killed
			ttl = processTTL
		}
		return plan(fmt.Sprint(n), ttl, server.Address())
	}
	holder, next := startPair(t, planOf(0), planOf(1))
	var members []*member
	var took []time.Duration
	for i := range handOvers {
		signalled := holder.signal(syscall.SIGTERM)
		took = append(took, next.await(memberBeat, 0).after-signalled)
		holder.ends(0)
		members = append(members, holder)
		holder, next = next, startMember(t, planOf(i+2))
		next.await(memberFailed, 0)
	}
	slices.Sort(took)
	within(t, "most times from SIGTERM to the next one", took[handOvers/2], processRetry)
	killed := holder.signal(syscall.SIGKILL)
	within(t, "from SIGKILL to the next one", next.await(memberBeat, 0).after-killed, processTTL+processRetry)
	members = append(members, holder, next)
	checkMembers(t, len(members), members...)
}
