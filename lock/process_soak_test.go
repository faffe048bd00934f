//go:build soak

package lock_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
)

// TestSoakProcessServerRestarts: a server that is killed repeatedly, and down for less than the lease each time, causes no loss of the
// lock.
func TestSoakProcessServerRestarts(t *testing.T) { onBothEngines(t, testSoakProcessServerRestarts) }

func testSoakProcessServerRestarts(t *testing.T, plan planner) {
	server := startEmbedded(t)
	a, b := startPair(t, plan("a", safeTTL, server.Address()), plan("b", safeTTL, server.Address()))
	for round := range 6 {
		server.Kill()
		time.Sleep(time.Duration(round) * 200 * time.Millisecond)
		must(t, server.Start())
		a.await(memberRenewed, sinceBoot())
	}
	handOff(t, a, b, processRetry)
}

// handOff checks that a has kept the lock, and ends it. The other one must hold the lock in time, and is ended too.
func handOff(t *testing.T, a, b *member, promised time.Duration) {
	t.Helper()
	a.kept()
	signalled := a.signal(syscall.SIGTERM)
	a.ends(0)
	within(t, "the hand-off", b.await(memberBeat, 0).after-signalled, promised)
	b.signal(syscall.SIGTERM)
	b.ends(0)
	checkMembers(t, 2, a, b)
}

// TestSoakProcessServerStaysDown: the lock is lost when the trust window has ended, though the server is down and the runner is busy. It
// is granted to another one soon after the server is back: the downtime does not count, so the first lease lasts a while longer.
func TestSoakProcessServerStaysDown(t *testing.T) { onBothEngines(t, testSoakProcessServerStaysDown) }

func testSoakProcessServerStaysDown(t *testing.T, plan planner) {
	server := startEmbedded(t)
	stalling := plan("a", processTTL, server.Address())
	stalling.Stall = processTTL
	a, b := startPair(t, stalling, plan("b", processTTL, server.Address()))
	server.Kill()
	killed := sinceBoot()
	a.ends(1)
	beats := a.linesOf(memberBeat)
	if last := beats[len(beats)-1]; last.before > killed+processTTL {
		t.Errorf("was within its trust window for %v without a server", last.before-killed)
	}
	must(t, server.Start())
	back := sinceBoot()
	within(t, "after the server was back, the hand-off", b.await(memberBeat, 0).after-back, processTTL+processRetry)
	b.signal(syscall.SIGTERM)
	b.ends(0)
	checkMembers(t, 2, a, b)
}

// TestSoakProcessNetworkHangs: when the network of the holder hangs, its trust window ends before the next holder's
// begins, even if answers were slow before. Late messages change nothing.
func TestSoakProcessNetworkHangs(t *testing.T) { onBothEngines(t, testSoakProcessNetworkHangs) }

func testSoakProcessNetworkHangs(t *testing.T, plan planner) {
	server := startEmbedded(t)
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

// TestSoakProcessConnectionHangs: the lock is kept when a single connection hangs, or all connections to one of two addresses.
func TestSoakProcessConnectionHangs(t *testing.T) { onBothEngines(t, testSoakProcessConnectionHangs) }

func testSoakProcessConnectionHangs(t *testing.T, plan planner) {
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
			server := startEmbedded(t)
			proxy := fixtures.NewProxy(t, server.Address())
			first, through := plan("a", ttl), way(proxy.Addr(), server.Address())
			first.Addresses, first.Ways = through.Addresses, through.Ways
			a, b := startPair(t, first, plan("b", ttl, server.Address()))
			time.Sleep(2 * processRetry) // so that both addresses are connected
			proxy.Hang()
			hung := sinceBoot()
			if !first.Session { // a session may use the other address already, or resume before it is unverified
				failed := a.await(memberFailed, hung).before // the time when that renewal was sent
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

// TestSoakProcessTwoServers: with two servers on one database the lock is kept when first one and then the other is killed.
func TestSoakProcessTwoServers(t *testing.T) { onBothEngines(t, testSoakProcessTwoServers) }

func testSoakProcessTwoServers(t *testing.T, plan planner) {
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
	handOff(t, a, b, safeTTL)
}

// TestSoakProcessRollingRestart: in a rolling restart on one host, with the default owner, the old and the new process never hold the
// lock at the same time. The old one keeps it until it is stopped.
func TestSoakProcessRollingRestart(t *testing.T) { onBothEngines(t, testSoakProcessRollingRestart) }

func testSoakProcessRollingRestart(t *testing.T, plan planner) {
	server := startEmbedded(t)
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
