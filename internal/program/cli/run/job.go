package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	locklib "github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// job is a command under a guard, as the process sees it that keeps the lock.
type job struct {
	*kept
	helper   *helper
	released *os.File // the pipe of the word that the claims are released
	cgroup   cgroup
	reports  <-chan report
	others   []int // children of this process that have nothing to do with it
	terminal *terminal
	// alone: what is typed is for the command.
	alone bool

	mu     sync.Mutex
	orders *os.File // the pipe

	group int // the command's; 0 until it runs
	// lent: the command was in the foreground when it was stopped.
	lent bool
	// echo: the next TSTP comes from this process itself.
	echo bool
	// unstopped fires after each step of the time that the kernel has for stopping this process. When no steps are left, it was not
	// stopped.
	unstopped <-chan time.Time
	steps     int
	// interrupted: INT was passed on, so it did not go to the command alone.
	interrupted bool
	// lost: the command is stopped because of the lock.
	lost bool
	// unwatched: the command is stopped because the reaper has died.
	unwatched bool
	// overdue fires at overdueAt, when the guard should have killed a command that is to end: it stands still.
	overdue   <-chan time.Time
	overdueAt time.Time
}

// runCommand runs the command while the claims are active, releases the claims, and returns the error to end with.
func (k *kept) runCommand() error {
	j := &job{kept: k, terminal: controllingTerminal(), others: childrenOf()[os.Getpid()]}
	j.alone = j.terminal.isJob()
	if err := j.start(k.environment()); err != nil {
		return errors.Join(fmt.Errorf("cannot start the command: %w", err), k.release())
	}
	err := j.watch()
	if !k.isHeld() && !j.lost && j.group != 0 {
		err = exit.With(Lost, fmt.Errorf("the lock %s was lost before the command had ended", k.names()))
	}
	j.reclaimTerminal()
	stop := k.release()
	j.dismiss()
	if stop != nil {
		return stop
	}
	return err
}

// dismiss tells the guard and the reaper that the claims are released, or given up, and waits for their end. If this process ends before,
// they release the claims.
func (j *job) dismiss() {
	_, _ = j.released.Write(make([]byte, 2)) // a byte for each
	j.wakeHelpers()
	<-j.helper.gone
}

// start starts the reaper, which starts the guard, which starts the command.
func (j *job) start(env []string) error {
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		return err
	}
	reportsOut, reportsIn, err := os.Pipe()
	if err != nil {
		return err
	}
	releasedOut, releasedIn, err := os.Pipe()
	if err != nil {
		return err
	}
	// They keep their numbers: 3 and 4 may be streams of the command.
	in, out, word := ordersOut.Fd(), reportsIn.Fd(), releasedOut.Fd()
	for _, fd := range []uintptr{in, out, word} {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	// The command may run before this process hears of it. What comes from now on waits in the pipe of orders until it does.
	catchJobSignals(j.signals)
	j.cgroup = makeCgroup()
	p := pipes{orders: int(in), reports: int(out), released: int(word), cgroup: j.cgroup}
	j.helper, err = p.startHelper(helperFlag, env)
	_ = errors.Join(ordersOut.Close(), reportsIn.Close(), releasedOut.Close()) // else this process would not learn that nobody reads
	if err != nil {
		j.cgroup.remove()
		return err
	}
	forgetStreams(0, 1)
	j.released, j.orders, j.reports = releasedIn, ordersIn, readReports(json.NewDecoder(reportsOut))
	term, kill := j.limits(j.leaseEnd()) // with the command, which must not run without them when this process is stopped now
	// It may be larger than a pipe, and is written as the guard reads it.
	_ = json.NewEncoder(ordersIn).Encode(order{Grace: j.Grace, Command: j.command(), Term: term, Kill: kill})
	for _, l := range j.locks {
		l.follow(j.sendLimits)
	}
	j.sendLimits()
	return nil
}

func (j *job) command() *command {
	c := &command{Path: []byte(j.path), Leave: j.Leave}
	for _, word := range j.Words {
		c.Words = append(c.Words, []byte(word))
	}
	return c
}

// maxReports is more than a guard sends one after the other. They wait in the channel, so watch finds the last one when it looks whether the
// guard stands still, also if this process was kept waiting.
const maxReports = 8

// readReports returns a channel that is closed when the guard and the reaper are gone.
func readReports(in *json.Decoder) <-chan report {
	reports := make(chan report, maxReports)
	go func() {
		defer close(reports)
		for {
			var r report
			if in.Decode(&r) != nil {
				return
			}
			reports <- r
		}
	}()
	return reports
}

// limits returns when the command gets TERM and KILL if the lease ends then.
func (j *job) limits(end time.Duration) (term, kill time.Duration) {
	kill = end - lease.KillMargin(j.TTL)
	return kill - min(j.Grace, j.TTL/20*3), kill
}

// sendLimits sends the guard the limits by the leases as they are now.
func (j *job) sendLimits() {
	j.mu.Lock()
	defer j.mu.Unlock()
	term, kill := j.limits(j.leaseEnd())
	j.write(order{Term: term, Kill: kill})
}

// order sends the guard an order. The guard may be gone.
func (j *job) order(o order) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.write(o)
}

// write writes an order, or nothing of it: while the guard stands still, the pipe may be full. Without new limits it kills the command sooner. The caller
// has the lock.
func (j *job) write(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		return
	}
	for range 2 { // a deadline that has passed while this process stood still says nothing of the pipe
		if j.orders.SetWriteDeadline(time.Now().Add(orderTime)) != nil {
			return
		}
		if _, err := j.orders.Write(append(text, '\n')); !errors.Is(err, os.ErrDeadlineExceeded) { // less than a pipe takes at once (PIPE_BUF)
			return
		}
	}
}

// orderTime is how long an order waits for room in the pipe.
const orderTime = 100 * time.Millisecond

// stop has the command stopped: by the guard, which goes on if somebody has stopped it, or by this process if the guard does not.
func (j *job) stop() {
	j.order(order{Stop: true})
	j.wakeHelpers()
	j.expectEnd(j.Grace, killTime+time.Second) // the guard reports first what cannot be killed
}

// expectEnd has this process kill the command when its grace is over and the guard is late.
func (j *job) expectEnd(grace, late time.Duration) {
	wait := max(reportTime, min(grace, math.MaxInt64-late)+late)
	if at := time.Now().Add(wait); j.overdueAt.IsZero() || at.Before(j.overdueAt) {
		j.overdueAt, j.overdue = at, time.After(wait)
	}
}

// watch returns when the command and all that it left are gone.
func (j *job) watch() error {
	reaped := j.helper.gone
	if helperFlag != ReaperFlag { // the reports of the guard tell its end
		reaped = nil
	}
	for {
		select {
		case sig := <-j.signals:
			j.signal(sig)
		case <-j.unstopped:
			if j.steps--; j.steps > 0 || isPending(os.Getpid(), syscall.SIGTTIN) {
				j.unstopped = time.After(stopStep)
			} else {
				j.resume()
			}
		case end := <-j.Ended:
			end.End()
			j.lose(end)
		case <-reaped:
			reaped = nil
			j.unwatched = true
			j.stop()
		case <-j.overdue:
			select {
			case r, ok := <-j.reports: // what it has done was not heard yet, as where this process stood still, too
				j.overdue = time.After(reportTime)
				if done, err := j.hear(r, ok); done {
					return err
				}
			default:
				return j.guardStuck()
			}
		case r, ok := <-j.reports:
			if done, err := j.hear(r, ok); done {
				return err
			}
		}
	}
}

// hear acts on a report of the guard or the reaper, or on the end of both. done says that the run ends, with an error.
func (j *job) hear(r report, ok bool) (done bool, err error) {
	if !ok {
		return true, j.guardDied()
	}
	return j.handle(r)
}

// handle acts on a report. After the last one it returns the error that the run ends with.
func (j *job) handle(r report) (done bool, err error) {
	switch {
	case r.Errno != 0:
		return true, j.notStarted(r.Errno)
	case r.Pid != 0:
		j.started(r.Pid)
	case r.Stopped != 0:
		j.stopped(r.Stopped)
	case r.Lapsed && !j.lost:
		j.isLost()
		j.sayLapsed()
	case r.Immortal:
		j.overdue, j.overdueAt = nil, time.Now() // which nothing comes before
		j.Say("the command has become another user's and cannot be killed; waiting for its end")
	case r.Ended:
		return true, j.verdict(r.Status)
	case r.Killed:
		return true, errGuardDied
	}
	return false, nil
}

// notStarted returns the error for a command that the kernel has refused.
func (j *job) notStarted(errno syscall.Errno) error {
	if _, err := os.Stat(j.path); errors.Is(err, fs.ErrNotExist) {
		return unusable(j.Words[0], err)
	}
	if errno == syscall.ENOENT {
		return exit.With(NotExecutable, fmt.Errorf("%q cannot be executed: the interpreter that it names does not exist", j.Words[0]))
	}
	return exit.With(NotExecutable, fmt.Errorf("%q cannot be executed: %w", j.Words[0], errno))
}

// started is called when the command runs.
func (j *job) started(pid int) {
	j.group = pid
	useTerminal()
	if j.alone {
		j.terminal.give(j.group)
	}
}

// verdict returns the error that the run ends with after the command has ended.
func (j *job) verdict(status syscall.WaitStatus) error {
	switch {
	case j.lost:
		return exit.With(Lost, nil)
	case j.unwatched:
		return errReaperDied
	case status.Signaled():
		return signalled(status.Signal())
	case status.ExitStatus() != 0:
		return exit.With(status.ExitStatus(), nil)
	}
	return nil
}

// lose stops the command because a lock is lost.
func (j *job) lose(end *hold.EndedError) {
	j.stop()
	if j.lost {
		return
	}
	j.isLost()
	err, ended := end.Err, models.ClaimEndedError{}
	switch wire := connect.ErrorOfCall(err); {
	case errors.As(err, &ended):
		err = ended
	case errors.Is(err, locklib.ErrTimeUp): // the guard says so first, unless it was kept waiting
		j.sayLapsed()
		return
	case wire != nil:
		err = j.Explain(wire)
	}
	j.Say("the lock %q is lost: %v; the command is stopped", end.Name, err)
}

// isLost notes that the command is stopped because of the lock: the guard kills it when its grace is over, or the lease about to end. If it
// does not, this process does, in the middle of the margin that is left then, or when the guard has had as long as a kill may take.
func (j *job) isLost() {
	_, kill := j.limits(j.leaseEnd())
	j.lost = true
	j.expectEnd(min(j.Grace, kill-sinceBoot()), min(lease.KillMargin(j.TTL)/2, killTime+time.Second))
}

// reportTime is how long the report of a guard takes, at most, that has done its work.
const reportTime = 200 * time.Millisecond

func (j *job) sayLapsed() {
	j.Say("the lease of %s cannot be renewed; the command is stopped", j.names())
}

var (
	errGuardDied  = errors.New("the process that guards the command has died, so the command was killed")
	errGuardStuck = errors.New("the process that guards the command does not run, so the command was killed")
	errReaperDied = errors.New("the process that watches the guard of the command has died, so the command was stopped")
)

// guardStuck kills the command, since the guard does not.
func (j *job) guardStuck() error {
	_ = j.guardDied() // as if it had
	switch {
	case j.lost:
		return exit.With(Lost, errGuardStuck)
	case j.unwatched:
		return errGuardStuck
	default:
		j.Say("%v", errGuardStuck)
		return signalled(syscall.SIGKILL)
	}
}

// guardDied kills what the guard and the reaper have left: those are children of this process now.
func (j *job) guardDied() error {
	if j.group != 0 {
		_ = syscall.Kill(-j.group, syscall.SIGKILL)
	}
	_ = j.helper.process.Kill()
	<-j.helper.gone
	j.cgroup.kill()
	defer j.cgroup.remove()
	for {
		left := j.children()
		if len(left) == 0 {
			return errGuardDied
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

func (j *job) signal(sig os.Signal) {
	switch sig {
	case syscall.SIGPIPE:
	case syscall.SIGTERM:
		j.stop()
	case syscall.SIGCONT:
		j.resume()
	case syscall.SIGTSTP:
		if !j.echo {
			j.order(order{Signal: syscall.SIGTSTP})
		}
		j.echo = false
	default:
		j.interrupted = j.interrupted || sig == syscall.SIGINT
		number, _ := sig.(syscall.Signal)
		j.order(order{Signal: number})
	}
}

// stopped is called when a signal has stopped the command. If that is because it needs the terminal, and this process has it, it gets the
// terminal. Otherwise this process stops too, so that the shell knows.
func (j *job) stopped(sig syscall.Signal) {
	if j.terminal == nil {
		return
	}
	foreground := j.terminal.foreground()
	needy := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	if needy && (foreground == j.terminal.own || foreground == j.group) {
		j.terminal.give(j.group)
		// Ctrl-Z may have come for the command since it was stopped.
		j.order(order{Signal: syscall.SIGCONT, Again: syscall.SIGTSTP})
		return
	}
	if sig != syscall.SIGSTOP {
		j.unstopped, j.steps = time.After(stopStep), stopSteps
	}
	// What the terminal has sent to the command's group, ours would have got. This process stops of TTIN, because Go cannot do what TSTP
	// does once it has caught it. Where no shell would ever continue this process, the kernel does not stop it.
	switch {
	case needy:
		_ = syscall.Kill(0, syscall.SIGTTIN)
		return
	case foreground == j.group:
		j.lent, j.echo = true, true
		j.terminal.give(j.terminal.own)
		_ = syscall.Kill(0, syscall.SIGTSTP)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGTTIN)
}

// A process that has sent itself a signal to stop is given stopSteps times stopStep to stop. One step that was over while the
// process was stopped does not count for much: then CONT comes within the next one. While the signal is still to be taken, which is for the
// thread that the kernel has chosen, nothing is decided.
const (
	stopSteps = 4
	stopStep  = 50 * time.Millisecond
)

// resume continues the command, if the lock is still held.
func (j *job) resume() {
	j.unstopped = nil
	if !j.isHeld() {
		return // and the guard kills it
	}
	o := order{Signal: syscall.SIGCONT}
	switch j.terminal.foreground() {
	case 0:
	case j.group: // whom the last Ctrl-Z was for
		o.Again = syscall.SIGTSTP
	case j.terminal.own:
		if !j.lent {
			break
		}
		j.lent = false
		if !isPending(j.group, syscall.SIGTSTP) { // otherwise it came before, and is over
			o.Again = syscall.SIGTSTP // from now on Ctrl-Z is for the command
		}
		j.terminal.give(j.group)
	}
	j.order(o)
}

// reclaimTerminal takes the terminal back if the command has it.
func (j *job) reclaimTerminal() {
	if j.group != 0 && j.terminal.foreground() == j.group {
		j.terminal.give(j.terminal.own)
		j.hiddenInterrupt = !j.interrupted
	}
}
