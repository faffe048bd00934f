package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ReaperFlag makes a process of this program the reaper of a guard. Its value is in the form of pipes.arg.
const ReaperFlag = "reaper"

// pipes goes from the supervisor to the reaper and the guard: the numbers of the pipes of orders, of reports, and of the word that the
// claims are released; and the control group of the command.
type pipes struct {
	orders, reports, released int
	cgroup                    cgroup
}

// arg returns the argument that makes a process of this program a reaper or a guard.
func (p pipes) arg(flag string) string {
	return fmt.Sprintf("--%s=%d,%d,%d,%s", flag, p.orders, p.reports, p.released, p.cgroup)
}

// parsePipes reads the value of such an argument.
func parsePipes(value string) (p pipes, err error) {
	numbers := strings.SplitN(value, ",", 4)
	if len(numbers) == 4 {
		p.cgroup = cgroup(numbers[3])
		for i, number := range []*int{&p.orders, &p.reports, &p.released} {
			var failed error
			*number, failed = strconv.Atoi(numbers[i])
			err = errors.Join(err, failed)
		}
	}
	if len(numbers) != 4 || err != nil {
		return pipes{}, fmt.Errorf("--%s and --%s are for locket run alone", ReaperFlag, GuardFlag)
	}
	return p, nil
}

// Reaper runs a reaper until its end: the parent of the guard, and the process that inherits the command's
// processes if the guard is killed. Then it kills all of them, and if the supervisor is killed, too, before it has released
// the claims, the reaper releases them: dial connects to the servers.
func Reaper(value string, dial Dial) error {
	p, err := parsePipes(value)
	if err != nil {
		return err
	}
	becomeReaper()
	catchSignals()
	guard, err := p.startSelf(GuardFlag, os.Environ())
	_ = syscall.Close(p.orders)
	if err != nil {
		return err
	}
	forgetStreams(0, 1, 2)
	for killed := false; ; {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children are left
			p.cgroup.remove()
			_ = json.NewEncoder(os.NewFile(uintptr(p.reports), "reports")).Encode(report{Killed: true})
			return p.awaitRelease(dial)
		case pid == guard && status.Exited() && status.ExitStatus() == 0: // nothing is left to do
			return nil
		case pid == guard && status.Exited() && status.ExitStatus() == Failure: // but to release the claims: it has failed to
			return p.awaitRelease(dial)
		case pid == guard:
			killed = true
		}
		if killed {
			p.cgroup.kill()
			_ = signalLeft(0, syscall.SIGKILL)
		}
	}
}

// awaitRelease returns when the supervisor has said that it has released the claims, or gives them up. If it is gone before, awaitRelease
// releases them.
func (p pipes) awaitRelease(dial Dial) error {
	word := make([]byte, 1) // the next byte is for the other one
	if n, _ := os.NewFile(uintptr(p.released), "released").Read(word); n == 0 {
		return releaseForSupervisor(dial)
	}
	return nil
}

// startSelf starts this program as a reaper or a guard, in its own process group.
func (p pipes) startSelf(flag string, env []string) (pid int, err error) {
	program, err := thisProgram()
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(program, []string{"locket", "run", p.arg(flag)}, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: ownGroup(0)})
}
