package program_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// TestLogThatNobodyReads: requests are answered while nobody reads the log, even if it has no room for another line,
// and after its reader has ended.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"standard error": {"--log-level", "debug"}, "standard output": {"--log-format", "lager", "--log-level", "debug"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, log, err := os.Pipe()
			harness.Must(t, err)
			defer reader.Close()
			_, err = unix.FcntlInt(log.Fd(), unix.F_SETPIPE_SZ, 4096)
			harness.Must(t, err)
			address := freeAddress(t)
			cmd := exec.Command(fixtures.LocketProgram(t), append([]string{"server", "--data", filepath.Join(t.TempDir(), "data"), "--grpc-address", "", "--http-address", address}, args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			cmd.Env, cmd.Stdout, cmd.Stderr = fixtures.CleanEnv(), log, log
			harness.Must(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()
			harness.Must(t, log.Close())
			fetch := func() error {
				resp, err := http.Get("http://" + address + "/v1/locks/" + strings.Repeat("n", 1000))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusNotFound {
					return fmt.Errorf("%s", resp.Status)
				}
				return nil
			}
			harness.Eventually(t, fetch)
			for range 50 {
				harness.Must(t, fetch())
			}
			harness.Must(t, reader.Close())
			for range 10 {
				harness.Must(t, fetch())
			}
			harness.Must(t, cmd.Process.Signal(syscall.SIGTERM))
			if err := cmd.Wait(); err != nil {
				t.Errorf("the end: %v", err)
			}
		})
	}
}
