package lock_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// member is a process that acquires the lock: this test binary, executed again.
type member struct {
	t    *testing.T
	plan memberPlan
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu       sync.Mutex
	rest     []byte // the beginning of a line
	lines    []memberLine
	unparsed []string // lines that are not in the format of memberLine
}

// startMember starts a member. It is killed when the test ends. If the test has failed, its lines are logged.
func startMember(t *testing.T, plan memberPlan) *member {
	t.Helper()
	text, err := json.Marshal(plan)
	must(t, err)
	m := &member{t: t, plan: plan, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	m.cmd.Env = append(fixtures.CleanEnv(), envMember+"="+string(text))
	m.cmd.Stdout, m.cmd.Stderr = m, m
	m.cmd.SysProcAttr = diesWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread must live as long as the child
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			_ = m.cmd.Wait()
		}
		close(m.done)
	}()
	must(t, <-started)
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill()
		<-m.done
		if t.Failed() {
			t.Logf("what %s printed:\n%s", plan.Owner, m.story())
		}
	})
	return m
}

// Write gets the member's output.
func (m *member) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest = append(m.rest, p...)
	for {
		line, rest, found := bytes.Cut(m.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		if l, err := parseMemberLine(string(line)); err == nil {
			m.lines = append(m.lines, l)
		} else {
			m.unparsed = append(m.unparsed, string(line))
		}
		m.rest = rest
	}
}

// linesOf returns the lines of a kind.
func (m *member) linesOf(kind string) []memberLine {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []memberLine
	for _, l := range m.lines {
		if l.kind == kind {
			lines = append(lines, l)
		}
	}
	return lines
}

// await returns the first line of a kind for an event after a moment.
func (m *member) await(kind string, since time.Duration) memberLine {
	m.t.Helper()
	var found memberLine
	harness.Eventually(m.t, func() error {
		ended := m.ended()
		for _, l := range m.linesOf(kind) {
			if l.before > since {
				found = l
				return nil
			}
		}
		if ended {
			m.t.Fatalf("%s ended, and has not printed %q", m.plan.Owner, kind)
		}
		return fmt.Errorf("%s does not print %q", m.plan.Owner, kind)
	})
	return found
}

func (m *member) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// signal sends a signal, and returns the time before that.
func (m *member) signal(sig syscall.Signal) time.Duration {
	m.t.Helper()
	before := sinceBoot()
	must(m.t, m.cmd.Process.Signal(sig))
	return before
}

// ends waits for the end of the member, with an exit code: 0 after a signal, 1 after the loss of the lock. It must have leaked no
// goroutine.
func (m *member) ends(code int) memberLine {
	m.t.Helper()
	last := m.await(memberEnded, 0)
	harness.Await(m.t, "end of "+m.plan.Owner, m.done)
	if got := m.cmd.ProcessState.ExitCode(); got != code {
		m.t.Errorf("%s ended with %d (%s), want %d", m.plan.Owner, got, last.text, code)
	}
	if code == 1 && (!strings.Contains(last.text, "the lock was lost") || len(m.linesOf(memberLost)) != 1) {
		m.t.Errorf("%s ended with %q", m.plan.Owner, last.text)
	}
	if leaked := m.linesOf(memberLeaked); len(leaked) > 0 {
		m.t.Errorf("%s leaked: %s", m.plan.Owner, leaked[0].text)
	}
	return last
}

// kept fails the test unless the member has held the lock all the time with one token, and still holds it.
func (m *member) kept() {
	m.t.Helper()
	beat := m.await(memberBeat, sinceBoot())
	acquired, lost := m.linesOf(memberAcquired), m.linesOf(memberLost)
	if len(acquired) != 1 || len(lost) != 0 || acquired[0].token != beat.token {
		m.t.Errorf("%s acquired %v, lost %v, and holds with %d", m.plan.Owner, acquired, lost, beat.token)
	}
}

// story returns the output of the member, without repeated beats and renewals.
func (m *member) story() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	routine := func(i int) bool {
		return i < 0 || i >= len(m.lines) || m.lines[i].kind == memberBeat || m.lines[i].kind == memberRenewed
	}
	var b strings.Builder
	for i, l := range m.lines {
		if !routine(i) || !routine(i-1) || !routine(i+1) {
			fmt.Fprintf(&b, "%v (%v) %s %d %s\n", l.before, l.after-l.before, l.kind, l.token, l.text)
		}
	}
	return b.String() + strings.Join(m.unparsed, "\n")
}

// term is the part of a trust window that the lines of a member prove, with one token. The window may have been longer. If two
// terms overlap, the trust windows did.
type term struct {
	owner       string
	token       uint64
	first, last memberLine
}

// checkMembers checks all lines of the members of one lock: no two trust windows overlapped, each token was greater than the one
// before, and each window ended in time after its last renewal was sent. There must have been the given number of terms.
func checkMembers(t *testing.T, count int, members ...*member) {
	t.Helper()
	var terms []term
	for _, m := range members {
		m.checkLeases()
		for _, beat := range m.linesOf(memberBeat) {
			if n := len(terms); n > 0 && terms[n-1].owner == m.plan.Owner && terms[n-1].token == beat.token {
				terms[n-1].last = beat
			} else {
				terms = append(terms, term{m.plan.Owner, beat.token, beat, beat})
			}
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return cmp.Compare(a.token, b.token) })
	for i := 1; i < len(terms); i++ {
		a, b := terms[i-1], terms[i]
		gap := b.first.after - a.last.before
		t.Logf("%s held for %v; then for %v nobody did", a.owner, a.last.after-a.first.before, gap)
		if a.token == b.token {
			t.Errorf("%s and %s had the token %d", a.owner, b.owner, a.token)
		}
		if gap <= 0 {
			t.Errorf("%s began with token %d when the trust window of %s, with %d, still lasted for %v", b.owner, b.token, a.owner, a.token, -gap)
		}
	}
	if len(terms) != count {
		t.Errorf("%d terms, want %d", len(terms), count)
	}
}

// checkLeases checks that, at each moment of the trust window, an answered renewal had been sent less than the TTL minus the margin
// before.
func (m *member) checkLeases() {
	m.t.Helper()
	lease := m.plan.TTL - max(m.plan.TTL/20, 100*time.Millisecond)
	renewals := m.linesOf(memberRenewed)
	var late time.Duration
	for _, beat := range m.linesOf(memberBeat) {
		var sent time.Duration
		for _, r := range renewals {
			if (r.token == beat.token || m.plan.Session) && r.after <= beat.after { // a heartbeat of a session renews all tokens
				sent = max(sent, r.before)
			}
		}
		late = max(late, beat.before-sent-lease)
	}
	if late > 0 {
		m.t.Errorf("the trust window of %s lasted %v too long", m.plan.Owner, late)
	}
}
