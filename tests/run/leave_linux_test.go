package run_test

import (
	"syscall"
	"testing"
)

// With --leave the processes that the command has started continue, without the lock, when the command ends by
// itself. When locket run stops the command, they end.
func TestRunLeave(t *testing.T) {
	t.Parallel()
	server := runServer(t)
	client := server.Client(t)
	const daemon = `setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid; `
	r := shell(t, server.Address(), "left", daemon+"exit 7", "--leave")
	if status := r.wait(); status != 7 {
		t.Errorf("status %d: %s", status, &r.stderr)
	}
	unheld(t, client, "left")
	// One that executes its program at this moment bears no mark.
	r.eventually("one process is left", func() bool { return len(marked(r.t, r.mark)) == 1 })
	stopped := shell(t, server.Address(), "stopped", daemon+"echo ready; sleep 1000", "--leave")
	stopped.prints("ready")
	stopped.signal(syscall.SIGTERM)
	stopped.ends(143)
}
