package robustness_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// diskEnv names the environment variable with the arguments of the server that TestDisk becomes in another process. Lines of its standard
// input control its disk.
const diskEnv = "LOCKET_TEST_DISK"

// diskModeEnv names the environment variable with the initial mode of the disk.
const diskModeEnv = "LOCKET_TEST_DISK_MODE"

// TestDisk: when a sync of the log fails, or does not end within 5 s, the server ends with an error, and writes nothing after that. The time
// while the server was stopped does not count. When the disk is full, the server waits.
func TestDisk(t *testing.T) {
	if arguments := os.Getenv(diskEnv); arguments != "" {
		serveOnDisk(strings.Split(arguments, "\n"))
	}
	for name, mode := range map[string]int32{"fails": fixtures.DiskFails, "hangs": fixtures.DiskHangs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startOnDisk(t)
			harness.Create(t, s.client, "r", "acknowledged", time.Minute)
			s.turn(mode)
			if err := s.create("lost"); status.Code(err) != codes.Unavailable {
				t.Errorf("the claim that the disk did not confirm: %v", err)
			}
			if code := s.wait(); code != 1 {
				t.Errorf("exit code %d", code)
			}
			if log := s.log.String(); !strings.Contains(log, "database: ") || !strings.Contains(log, "nothing is written until the server is started again") {
				t.Errorf("the log does not say why the server has ended:\n%s", log)
			}
			s.start()
			if _, err := s.client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "acknowledged"}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("hangs under the history", func(t *testing.T) {
		t.Parallel()
		s := startOnDisk(t, "--history-retention", "1s", "--history-minimum", "0")
		ends := func(n int) error {
			id := fmt.Sprint("id-", n)
			err := s.create(id)
			if err == nil {
				_, err = s.client.EndClaim(s.Context(), &models.EndClaimRequest{Id: id})
			}
			return err
		}
		harness.Must(t, ends(0))
		busy := make(chan struct{})
		go func() {
			defer close(busy)
			for n := 1; ends(n) == nil; n++ {
				time.Sleep(5 * time.Millisecond) // real time: others need the processor too
			}
		}()
		harness.Eventually(t, func() error { // the history is deleted by now
			if _, err := s.client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "id-0"}); status.Code(err) != codes.NotFound {
				return fmt.Errorf("it has the first claim: %w", err)
			}
			return nil
		})
		s.turn(fixtures.DiskHangs)
		if code := s.wait(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		<-busy
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		s := startOnDisk(t)
		s.turn(fixtures.DiskStops)
		created := make(chan error, 1)
		go func() { created <- s.create("made") }()
		harness.Eventually(t, s.stopped)
		time.Sleep(6 * time.Second) // real time: longer than a write may take
		harness.Must(t, s.child.Process.Signal(syscall.SIGCONT))
		if err := <-created; err != nil {
			t.Errorf("the claim whose sync a stop has lengthened: %v", err)
		}
		harness.Must(t, s.create("next"))
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		s := startOnDisk(t)
		s.turn(fixtures.DiskFull)
		value, made := strings.Repeat("v", 60<<10), 0
		create := func() error {
			_, err := s.client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: fmt.Sprint("r-", made), Id: fmt.Sprint("id-", made), Ttl: proto.Float64(60), Value: value})
			return err
		}
		var err error
		for ; err == nil; made++ {
			err = create()
		}
		made--
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "OUTCOME") {
			t.Fatalf("claim %d: %v", made, err)
		}
		if _, err := s.client.GetClaim(t.Context(), &models.GetClaimRequest{Id: fmt.Sprint("id-", made)}); status.Code(err) != codes.NotFound {
			t.Errorf("what was refused: %v", err)
		}
		s.turn(fixtures.DiskWorks)
		harness.Eventually(t, create)
	})
	for name, sizes := range map[string][]int{"full at the start": {60 << 10}, "full to the last byte at the start": {60 << 10, 1 << 10, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			startOnFullDisk(t, sizes)
		})
	}
}

// startOnFullDisk starts a server while the disk is full, after one that has filled its log with claims of some
// sizes. It behaves like a server whose disk becomes full: it serves reads, refuses changes, is not ready, and
// continues when there is room. So it does when it is killed meanwhile.
func startOnFullDisk(t *testing.T, sizes []int) {
	s := startOnDisk(t)
	harness.Must(t, s.create("ended"))
	harness.Must(t, second(s.client.EndClaim(t.Context(), &models.EndClaimRequest{Id: "ended"})))
	harness.Must(t, s.create("held"))
	s.turn(fixtures.DiskFull)
	value, made := "", 0
	create := func() error {
		return second(s.client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: fmt.Sprint("r-", made), Id: fmt.Sprint("id-", made), Ttl: proto.Float64(600), Value: value}))
	}
	for _, size := range sizes {
		for value = strings.Repeat("v", size); create() == nil; {
			made++
		}
	}
	if value == "" { // also the smallest change
		harness.Eventually(t, func() error {
			if _, err := harness.Renew(t, s.client, "held", time.Hour); status.Code(err) != codes.Unavailable {
				return fmt.Errorf("a renewal: %w", err)
			}
			return nil
		})
	}
	for range 2 {
		harness.Must(t, s.child.Process.Kill())
		<-s.ended
		s.mode = fixtures.DiskFull
		s.start()
		for id, want := range map[string]models.Status{"held": models.Status_STATUS_ACTIVE, fmt.Sprint("id-", made-1): models.Status_STATUS_ACTIVE, "ended": models.Status_STATUS_RELEASED} {
			if c, err := s.client.GetClaim(t.Context(), &models.GetClaimRequest{Id: id}); err != nil || c.GetStatus() != want {
				t.Errorf("%s is %v: %v", id, c.GetStatus(), err)
			}
		}
		if err := create(); status.Code(err) != codes.Unavailable || models.ReasonOf(err) != models.ReasonDatabaseUnavailable {
			t.Errorf("a claim that finds no room: %v", err)
		}
		if err := s.ready(); err == nil {
			t.Error("it is ready")
		}
	}
	if log := s.log.String(); strings.Count(log, "the disk is full: reads are served") != 2 {
		t.Errorf("the log does not say that the disk is full:\n%s", log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reading := harness.Later(func() (err error) { // also while the history is opened for writing
		for err == nil && ctx.Err() == nil {
			_, err = s.client.ListClaims(t.Context(), &models.ListClaimsRequest{})
			err = errors.Join(err, second(s.client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "ended"})))
		}
		return err
	})
	s.turn(fixtures.DiskWorks)
	harness.Eventually(t, create)
	harness.Eventually(t, s.ready)
	cancel()
	harness.Must(t, <-reading)
}

// ready returns an error while the server is not ready.
func (s *onDisk) ready() error { return readyAt(s.http) }

// onDisk is a server that TestDisk runs in another process.
type onDisk struct {
	*testing.T
	folder, address, http string
	flags                 []string
	client                models.LocketClient
	mode                  int32 // of the disk when the server starts
	child                 *exec.Cmd
	input                 *os.File
	ended                 chan int
	log                   fixtures.Buffer
}

func startOnDisk(t *testing.T, flags ...string) *onDisk {
	t.Helper()
	s := &onDisk{T: t, folder: filepath.Join(t.TempDir(), "data"), flags: flags}
	s.address, s.http = fmt.Sprint("127.0.0.1:", fixtures.FreePort(t)), fmt.Sprint("127.0.0.1:", fixtures.FreePort(t))
	s.client = harness.ClientAt(t, s.address)
	t.Cleanup(func() {
		if s.child != nil {
			_ = s.child.Process.Kill()
			<-s.ended
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.start()
	return s
}

func (s *onDisk) start() {
	s.Helper()
	arguments := []string{"server", "--database", "embedded:" + s.folder, "--grpc-address", s.address, "--http-address", s.http}
	arguments = append(arguments, s.flags...)
	s.child = exec.Command(os.Args[0], "-test.run=^TestDisk$")
	s.child.Env = append(fixtures.CleanEnv(), diskEnv+"="+strings.Join(arguments, "\n"), diskModeEnv+"="+fmt.Sprint(s.mode), "GORACE=atexit_sleep_ms=0")
	s.child.Stdout, s.child.Stderr = &s.log, &s.log
	read, write, err := os.Pipe()
	harness.Must(s.T, err)
	s.child.Stdin, s.input = read, write
	harness.Must(s.T, s.child.Start())
	harness.Must(s.T, read.Close())
	s.ended = make(chan int, 1)
	go func(child *exec.Cmd, ended chan<- int) {
		_ = child.Wait()
		ended <- child.ProcessState.ExitCode()
	}(s.child, s.ended)
	harness.Eventually(s.T, func() error {
		_, err := s.client.ListClaims(s.Context(), &models.ListClaimsRequest{})
		return err
	})
}

// turn changes what the disk does.
func (s *onDisk) turn(mode int32) {
	s.Helper()
	_, err := fmt.Fprintln(s.input, mode)
	harness.Must(s.T, err)
	harness.Eventually(s.T, func() error {
		if !strings.Contains(s.log.String(), fmt.Sprint("disk ", mode)) {
			return errors.New("it has not")
		}
		return nil
	})
}

// stopped returns an error while the server is not stopped.
func (s *onDisk) stopped() error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.child.Process.Pid))
	if err == nil && !bytes.Contains(stat, []byte(") T ")) {
		err = fmt.Errorf("it runs: %s", stat)
	}
	return err
}

func (s *onDisk) create(id string) error {
	ctx, cancel := context.WithTimeout(s.Context(), harness.HangTimeout)
	defer cancel()
	_, err := s.client.CreateClaim(ctx, &models.CreateClaimRequest{Resource: id, Id: id, Ttl: proto.Float64(60)})
	return err
}

// wait returns the exit status of the server.
func (s *onDisk) wait() int {
	s.Helper()
	select {
	case code := <-s.ended:
		s.child = nil
		return code
	case <-time.After(harness.HangTimeout):
		s.Fatal("the server goes on")
		return 0
	}
}

// serveOnDisk runs the server in this process. Before each write and each sync the kernel asks a goroutine of this process what to do
// (SECCOMP_RET_USER_NOTIF).
func serveOnDisk(arguments []string) {
	var mode atomic.Int32
	var first int32
	_, _ = fmt.Sscan(os.Getenv(diskModeEnv), &first)
	mode.Store(first)
	if err := fixtures.InterceptDisk(&mode); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var turned int32
			_, _ = fmt.Sscan(lines.Text(), &turned)
			mode.Store(turned)
			fmt.Fprintln(os.Stderr, "disk", turned)
		}
	}()
	os.Exit(cli.Execute(context.Background(), arguments, os.Stdout, os.Stderr))
}
