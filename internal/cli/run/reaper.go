package run

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ReaperFlag makes a process of this program the reaper of a guard. Its value is that of
// GuardFlag.
const ReaperFlag = "reaper"

// pipes are what the supervisor hands to the reaper, and that to the guard: the numbers
// of the pipes of orders and of reports, and the control group of the command.
type pipes struct {
	orders, reports int
	cgroup          cgroup
}

// arg returns the argument that makes a process of this program a reaper or a guard.
func (p pipes) arg(flag string) string {
	return fmt.Sprintf("--%s=%d,%d,%s", flag, p.orders, p.reports, p.cgroup)
}

// parsePipes reads the value of such an argument.
func parsePipes(value string) (p pipes, err error) {
	numbers := strings.SplitN(value, ",", 3)
	if len(numbers) == 3 {
		p.cgroup = cgroup(numbers[2])
		if p.orders, err = strconv.Atoi(numbers[0]); err == nil {
			p.reports, err = strconv.Atoi(numbers[1])
		}
	}
	if len(numbers) != 3 || err != nil {
		return pipes{}, fmt.Errorf("--%s and --%s are for locket run alone", ReaperFlag, GuardFlag)
	}
	return p, nil
}

// Reaper runs a reaper until its end: the parent of the guard, and the process that inherits the command's
// processes if the guard is killed together with the supervisor. Then it
// kills all of them, and releases the claims: dial connects to the servers.
func Reaper(value string, dial Dial) error {
	supervisor := os.Getppid()
	p, err := parsePipes(value)
	if err != nil {
		return err
	}
	becomeReaper()
	catchSignals()
	guard, err := p.startSelf(GuardFlag, os.Environ())
	_ = errors.Join(syscall.Close(p.orders), syscall.Close(p.reports)) // else nobody learns of the guard's end
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
			if os.Getppid() != supervisor {
				return releaseForSupervisor(dial)
			}
			return nil
		case pid == guard && status.Exited() && status.ExitStatus() == 0: // it has done all that is to do
			if os.Getppid() != supervisor { // which may have gone when the guard had
				return releaseForSupervisor(dial)
			}
			return nil
		case pid == guard:
			killed = true
		}
		if killed {
			p.cgroup.kill()
			_ = signalLeft(0, syscall.SIGKILL)
		}
	}
}

// startSelf starts this program as a reaper or a guard, in its own process group.
func (p pipes) startSelf(flag string, env []string) (pid int, err error) {
	program, err := thisProgram()
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(program, []string{"locket", "run", p.arg(flag)}, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: ownGroup(0)})
}
