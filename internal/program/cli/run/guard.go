package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// GuardFlag makes a process of this program the guard of a command. Its value is in the form of pipes.arg.
const GuardFlag = "guard"

// order is a message of the supervisor to the guard.
type order struct {
	// Command is the command to run. Only the first order has it.
	Command *command `json:",omitempty"`
	// Signal is for the command.
	Signal syscall.Signal `json:",omitempty"`
	// Again, when it is given with a CONT, is a signal to stop: if it waits for the command, which the CONT discards, it is sent again.
	Again syscall.Signal `json:",omitempty"`
	// Stop has the command stopped: TERM, and KILL after Grace.
	Stop  bool          `json:",omitempty"`
	Grace time.Duration `json:",omitempty"`
	// Term and Kill, when they are given, are when the command gets TERM and KILL, counted
	// from the boot, unless a later order replaces them.
	Term time.Duration `json:",omitempty"`
	Kill time.Duration `json:",omitempty"`
}

// command is a command line. It goes through the pipe, so that killing processes by their command lines (pkill -f) does not also kill the
// guard and the reaper.
type command struct {
	// Path is where the command is, Words are its name and its arguments: bytes, not always text.
	Path  []byte
	Words [][]byte
	// Leave keeps processes running that the command leaves when it ends by itself.
	Leave bool
}

// report is a message of the guard to the supervisor.
type report struct {
	// Pid is the command's, when it has started, Errno why it has not.
	Pid   int           `json:",omitempty"`
	Errno syscall.Errno `json:",omitempty"`
	// Stopped is the signal that has stopped the command.
	Stopped syscall.Signal `json:",omitempty"`
	// Lapsed: the lease is about to end, and the command gets TERM.
	Lapsed bool `json:",omitempty"`
	// Immortal: the command has become another user's, and cannot be killed.
	Immortal bool `json:",omitempty"`
	// Ended: the command has ended with a status, and all that it left.
	Ended  bool               `json:",omitempty"`
	Status syscall.WaitStatus `json:",omitempty"`
	// Killed, from the reaper: the guard has died, and the command and all that it left were killed.
	Killed bool `json:",omitempty"`
}

// guard is the process that starts a command, and ends when nothing of it is left. What the command leaves behind becomes the guard's
// children (on Linux), which it kills until there is none: no process can hide, however it forks. It stops the command by itself
//
//   - when the lease ends, whose end the supervisor has sent, even if the supervisor is stuck,
//   - when the supervisor is gone: the pipe of orders is closed.
//
// One goroutine does all this, so no process is signalled after it was waited for, when its number may be another's.
type guard struct {
	group  int // of the command, whose leader it is
	leave  bool
	cgroup cgroup
	orders chan order
	out    *json.Encoder

	// running: the command itself has not ended.
	running bool
	// early are the signals for the command that came before it was started.
	early  []syscall.Signal
	status syscall.WaitStatus
	// stopping: it was sent TERM, or what it left was.
	stopping, killing, immortal bool
	grace                       time.Duration
	// The times of TERM and KILL, and of the end of the grace, since the boot; 0 for never.
	term, kill, graceEnd time.Duration
	// killed is when KILL was sent first.
	killed time.Duration
}

// Guard runs the guard until the claims are released. If the supervisor is gone before, the guard releases them: dial
// connects to the servers.
func Guard(value string, dial Dial) error {
	p, err := parsePipes(value)
	if err != nil {
		return err
	}
	p.guard()
	return p.awaitRelease(dial)
}

// guard starts the command, and returns when no process of it is left, or with Leave when it has ended.
func (p pipes) guard() {
	for _, fd := range []int{p.orders, p.reports, p.released} {
		syscall.CloseOnExec(fd)
	}
	runtime.LockOSThread() // the command dies with the thread that has started it
	becomeReaper()
	children := catchChildren()
	g := &guard{cgroup: p.cgroup, orders: make(chan order), out: json.NewEncoder(os.NewFile(uintptr(p.reports), "reports"))}
	go g.listen(json.NewDecoder(os.NewFile(uintptr(p.orders), "orders")))
	first, ok := <-g.orders
	if !ok || first.Command == nil {
		p.cgroup.remove()
		return
	}
	g.grace, g.leave = first.Grace, first.Command.Leave
	g.obey(first)
	if status, may := g.mayStart(); !may {
		p.cgroup.remove()
		g.report(report{Ended: true, Status: status})
		return
	}
	pid, err := p.cgroup.startCommand(first.Command)
	if err != nil {
		errno := syscall.EIO
		errors.As(err, &errno)
		p.cgroup.remove()
		g.report(report{Errno: errno})
		return
	}
	forgetStreams(0, 1, 2)
	g.group, g.running = pid, true
	g.report(report{Pid: pid})
	for _, sig := range g.early {
		g.signal(sig)
	}
	g.watch(children)
	if g.leave {
		p.cgroup.tryRemove()
	} else {
		p.cgroup.remove()
	}
}

// mayStart waits until the lease lasts for a while. It may be over at first: this process has waited for its turn, and a renewal is on its
// way; or the supervisor was stopped, which learns of the loss when it goes on. If the command must stop before, mayStart returns the
// status that it would have had.
func (g *guard) mayStart() (status syscall.WaitStatus, may bool) {
	for g.isDue(g.term) {
		o, ok := <-g.orders
		switch {
		case !ok:
			return syscall.WaitStatus(syscall.SIGTERM), false
		case o.Stop:
			return syscall.WaitStatus(syscall.SIGTERM), false
		case o.Signal != 0 && deadly(o.Signal):
			return syscall.WaitStatus(o.Signal), false
		case o.Signal != 0:
			g.early = append(g.early, o.Signal)
		}
		g.obey(o)
	}
	return 0, true
}

// isText reports whether a file begins as text does, by the sign that shells go by.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	begin := make([]byte, 80)
	n, _ := file.Read(begin)
	return !bytes.Contains(begin[:n], []byte{0})
}

// startCommand starts a command. A script that does not name its interpreter is one of the shell, as in a shell.
func (c cgroup) startCommand(cmd *command) (pid int, err error) {
	words := make([]string, len(cmd.Words))
	for i, word := range cmd.Words {
		words[i] = string(word)
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: ownGroup(syscall.SIGKILL)}
	pid, err = c.start(string(cmd.Path), words, attr)
	if errors.Is(err, syscall.ENOEXEC) && isText(string(cmd.Path)) {
		words = slices.Concat([]string{"sh", string(cmd.Path)}, words[1:])
		return c.start("/bin/sh", words, attr)
	}
	return pid, err
}

func (g *guard) listen(in *json.Decoder) {
	defer close(g.orders)
	for {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		g.orders <- o
	}
}

// report sends a report. The supervisor may be gone.
func (g *guard) report(r report) { _ = g.out.Encode(r) }

// watch returns when the command and all that it left are gone.
func (g *guard) watch(children <-chan os.Signal) {
	for {
		select {
		case o, ok := <-g.orders:
			if !ok {
				g.orders = nil
				g.stop()
			}
			g.obey(o)
		case <-children:
		case <-time.After(g.pause()):
		}
		g.checkClock()
		if g.reap() {
			g.report(report{Ended: true, Status: g.status})
			return
		}
	}
}

// isDue reports whether a time since the boot has come; 0 never comes.
func (g *guard) isDue(at time.Duration) bool { return at != 0 && sinceBoot() >= at }

func (g *guard) obey(o order) {
	if o.Signal != 0 {
		again := o.Again != 0 && g.running && isPending(g.group, o.Again)
		g.signal(o.Signal)
		if again {
			g.signal(o.Again)
		}
	}
	if o.Stop {
		g.stop()
	}
	if o.Kill != 0 {
		g.term, g.kill = o.Term, o.Kill
	}
}

func (g *guard) checkClock() {
	if g.isDue(g.term) && !g.stopping {
		g.report(report{Lapsed: true})
		g.stop()
	}
	if !g.killing && (g.isDue(g.kill) || g.isDue(g.graceEnd)) {
		g.killing, g.killed = true, sinceBoot()
	}
	if g.killing {
		g.signalAll(syscall.SIGKILL)
	}
}

// pause is how long to wait for an event. The clock that counts runs on while the machine sleeps, timers do not.
func (g *guard) pause() time.Duration {
	switch {
	case g.immortal:
		return time.Second
	case g.killing, !g.running:
		return 20 * time.Millisecond
	}
	pause := time.Second
	for _, at := range []time.Duration{g.term, g.kill, g.graceEnd} {
		if at != 0 && (at != g.term || !g.stopping) {
			pause = min(pause, max(at-sinceBoot(), 0))
		}
	}
	return pause
}

// stop makes the command end. A command that is stopped is continued, or it could not end.
func (g *guard) stop() {
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)
	g.beginGrace()
}

func (g *guard) beginGrace() {
	if !g.stopping {
		now := sinceBoot()
		g.stopping, g.graceEnd = true, now+min(g.grace, math.MaxInt64-now)
	}
}

// signal sends a signal to the command's group.
func (g *guard) signal(sig syscall.Signal) {
	if g.running {
		_ = syscall.Kill(-g.group, sig)
	}
}

// signalAll sends a signal to the command and all that comes from it.
func (g *guard) signalAll(sig syscall.Signal) {
	g.signal(sig)
	// A control group can be killed whatever its processes have become, which takes a moment.
	dies := sig == syscall.SIGKILL && g.cgroup.kill() && sinceBoot() < g.killed+killTime
	if errors.Is(signalLeft(g.group, sig), syscall.EPERM) && g.killing && !dies && !g.immortal {
		g.immortal = true
		g.report(report{Immortal: true})
	}
}

// killTime is how long a control group may take to die of KILL before the guard reports that something cannot be killed.
const killTime = 5 * time.Second

// reap waits for children that have ended, and reports whether nothing is left.
func (g *guard) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children are left
			return !g.running && !isLeft(g.group)
		case pid == 0:
			return false
		case pid == g.group && status.Stopped():
			g.report(report{Stopped: status.StopSignal()})
		case pid == g.group && (status.Exited() || status.Signaled()):
			g.running, g.status = false, status
			if g.leave && !g.stopping {
				return true
			}
			g.endRest()
		}
	}
}

// endRest stops what the command has left.
func (g *guard) endRest() {
	if g.killing {
		g.signalAll(syscall.SIGKILL)
		return
	}
	g.signalAll(syscall.SIGTERM)
	g.signalAll(syscall.SIGCONT)
	g.beginGrace()
}

// forgetStreams closes streams, so that the reader of their other end does not wait for this process.
func forgetStreams(streams ...int) {
	null, err := syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for _, stream := range streams {
		replaceStream(null, stream)
	}
	_ = syscall.Close(null)
}
