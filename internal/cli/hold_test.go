package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/cli/connect"
	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// held is a locket with --hold that runs, or another one that goes on until it gets a signal.
type held struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr fixtures.Buffer
	ended          chan struct{}
}

func holdOf(t *testing.T, address string, args ...string) *held {
	t.Helper()
	return startHeld(t, address, append(args, "--hold")...)
}

func startHeld(t *testing.T, address string, args ...string) *held {
	t.Helper()
	h := newHeld(t, address, args...)
	h.start()
	return h
}

// newHeld is startHeld that does not start it.
func newHeld(t *testing.T, address string, args ...string) *held {
	t.Helper()
	h := &held{t: t, ended: make(chan struct{})}
	h.cmd = exec.Command(fixtures.LocketProgram(t), append([]string{args[0], "--address", address, "--context-file", os.DevNull}, args[1:]...)...)
	h.cmd.Stdout, h.cmd.Stderr = &h.stdout, &h.stderr
	return h
}

func (h *held) start() {
	h.t.Helper()
	harness.Must(h.t, h.cmd.Start())
	go func() {
		_ = h.cmd.Wait()
		close(h.ended)
	}()
	h.t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-h.ended
	})
}

// renewed waits until what is held is renewed from now on.
func (h *held) renewed(server *fixtures.Locket, name string) {
	h.t.Helper()
	version := func() uint64 {
		claims, err := server.Client(h.t).ListClaims(h.t.Context(), &models.ListClaimsRequest{Resource: &name, Status: live})
		harness.Must(h.t, err)
		if len(claims.GetClaims()) == 0 {
			h.t.Fatalf("nobody holds %s: %q", name, &h.stderr)
		}
		return claims.GetClaims()[0].GetVersion()
	}
	for before := version(); version() == before; {
		select {
		case <-h.ended:
			h.t.Fatalf("it has ended: %q", &h.stderr)
		case <-time.After(50 * time.Millisecond): // real time: between two looks
		}
	}
}

// says waits for a text on standard error.
func (h *held) says(text string) {
	h.t.Helper()
	harness.Eventually(h.t, func() error {
		if !strings.Contains(h.stderr.String(), text) {
			return fmt.Errorf("nothing of %q in %q", text, &h.stderr)
		}
		return nil
	})
}

// ends waits for the end, after a signal unless that is 0.
func (h *held) ends(sig syscall.Signal, status int, says string) {
	h.t.Helper()
	if sig != 0 {
		harness.Must(h.t, h.cmd.Process.Signal(sig))
	}
	select {
	case <-h.ended:
	case <-time.After(harness.HangTimeout):
		h.t.Fatalf("it runs on: %q", &h.stderr)
	}
	if got := h.cmd.ProcessState.ExitCode(); got != status || !strings.Contains(h.stderr.String(), says) {
		h.t.Errorf("status %d, want %d with %q: %q", got, status, says, &h.stderr)
	}
}

// What is held is renewed, and is free at once after a signal.
func TestHold(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	for sig, args := range map[syscall.Signal][]string{
		syscall.SIGINT:  {"lock", "int", "--ttl", "15s"},
		syscall.SIGTERM: {"claim", "term", "--ttl", "15s"},
		syscall.SIGHUP:  {"lock", "hup", "--ttl", "15s", "--owner", "me", "-o", "json"},
		syscall.SIGUSR1: {"claim", "usr1", "--ttl", "15s", "--shared", "--no-wait"},
	} {
		t.Run(args[1], func(t *testing.T) {
			t.Parallel()
			h := holdOf(t, server.Address(), args...)
			h.says(fmt.Sprintf("%q is held, with token", args[1]))
			h.renewed(server, args[1])
			if h.stdout.String() == "" {
				t.Errorf("it prints nothing but %q", &h.stderr)
			}
			if _, stderr, status := c.try("lock", args[1], "--owner", "other"); status != exit.Held {
				t.Errorf("it is free: %d, %s", status, stderr)
			}
			if sig == syscall.SIGUSR1 {
				sig = syscall.SIGINT
			}
			h.ends(sig, exit.OK, "is released")
			c.run("lock", args[1], "--owner", "other")
		})
	}
	t.Run("another holds it", func(t *testing.T) {
		t.Parallel()
		c.run("lock", "taken", "--owner", "me", "--ttl", "5m")
		holdOf(t, server.Address(), "lock", "taken").ends(0, exit.Held, `held by "me"`)
		holdOf(t, server.Address(), "claim", "taken", "--no-wait").ends(0, exit.Held, `held by "me"`)
		holdOf(t, server.Address(), "claim", "taken", "--wait", "300ms").ends(0, exit.Held, "was not acquired within 300ms")
		waiting := holdOf(t, server.Address(), "claim", "taken", "--id", "waiting")
		waiting.says("waits for its turn")
		waiting.ends(syscall.SIGINT, exit.Interrupted, "interrupted")
		if claim := c.run("get", "waiting"); !strings.Contains(claim, "withdrawn") {
			t.Error(claim)
		}
		patient := holdOf(t, server.Address(), "claim", "taken")
		patient.says("waits for its turn")
		c.run("release", "taken", "--owner", "me")
		patient.says("is held, with token")
		patient.ends(syscall.SIGINT, exit.OK, "is released")
	})
}

// What a request has taken is given up where the interruption came during the request, before anything could keep it.
func TestHoldInterrupted(t *testing.T) {
	t.Parallel()
	server := newCLI(t)
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	cmd := newClaimCommand()
	cmd.SetContext(interrupted)
	var stderr bytes.Buffer
	cmd.SetErr(&stderr)
	harness.Must(t, cmd.ParseFlags([]string{"--address", server.address, "--context-file", os.DevNull}))
	dialed, err := connect.Dial(cmd)
	harness.Must(t, err)
	defer dialed.Close()
	c, f := &connection{dialed}, claimFlags{ttl: time.Hour}
	ends := func(err error) {
		t.Helper()
		status, says := exit.Finish(interrupted, io.Discard, err), stderr.String()
		if released := status == exit.OK && strings.Contains(says, "is released"); status != exit.Interrupted && !released { // it was held first
			t.Errorf("status %d: %v; it says %s", status, err, says)
		}
		stderr.Reset()
	}
	for n := range 25 { // the interruption is now and then first
		claim, err := c.makeClaim(t.Context(), f.request(cmd, fmt.Sprint("claim", n)))
		harness.Must(t, err)
		ends(c.holdClaim(cmd, f, claim))
		req := &models.LockRequest{Resource: &models.Resource{Key: fmt.Sprint("lock", n), Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 3600}
		lock, err := c.Lock(t.Context(), req)
		harness.Must(t, err)
		ends(c.holdLock(cmd, req, lock.GetToken()))
	}
	if left := server.run("claims", "-o", "name"); left != "" {
		t.Errorf("%d claims are left", strings.Count(left, "\n"))
	}
}

// interrupting is a client whose command is interrupted when the server has taken a lock, before the answer arrives: after that, or never.
type interrupting struct {
	models.LocketClient
	interrupt context.CancelFunc
	lost      bool
}

func (c *interrupting) Lock(ctx context.Context, in *models.LockRequest, options ...grpc.CallOption) (*models.LockResponse, error) {
	resp, err := c.LocketClient.Lock(ctx, in, options...)
	c.interrupt()
	if c.lost {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return resp, err
}

// A lock that the server takes while the command is interrupted is known, or is released.
func TestLockInterrupted(t *testing.T) {
	t.Parallel()
	server := newCLI(t)
	cmd := newLockCommand()
	harness.Must(t, cmd.ParseFlags([]string{"--address", server.address, "--context-file", os.DevNull}))
	dialed, err := connect.Dial(cmd)
	harness.Must(t, err)
	defer dialed.Close()
	client := dialed.LocketClient
	for _, lost := range []bool{false, true} {
		ctx, interrupt := context.WithCancel(t.Context())
		dialed.LocketClient = &interrupting{client, interrupt, lost}
		req := &models.LockRequest{Resource: &models.Resource{Key: fmt.Sprint(lost), Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 3600}
		_, err := (&connection{dialed}).lockToHold(ctx, req)
		if lost != (err != nil) || lost && exit.Finish(ctx, io.Discard, dialed.Explain(err)) != exit.Interrupted {
			t.Errorf("without an answer: %v: %v", lost, err)
		}
	}
	if left := server.run("claims", "-o", "json"); strings.Contains(left, `"true"`) || !strings.Contains(left, `"false"`) {
		t.Errorf("left: %s", left)
	}
}

// denying is a client that another server answers, by other rules.
type denying struct{ models.LocketClient }

func (d denying) Lock(context.Context, *models.LockRequest, ...grpc.CallOption) (*models.LockResponse, error) {
	return nil, models.Denied("no", "hold", "r")
}

func (d denying) CreateClaim(context.Context, *models.CreateClaimRequest, ...grpc.CallOption) (*models.Claim, error) {
	return nil, models.Denied("no", "hold", "r")
}

// What a request has taken is given up where another server then refuses to keep it.
func TestHoldDenied(t *testing.T) {
	t.Parallel()
	server := newCLI(t)
	cmd := newClaimCommand()
	cmd.SetContext(t.Context())
	cmd.SetErr(io.Discard)
	harness.Must(t, cmd.ParseFlags([]string{"--address", server.address, "--context-file", os.DevNull}))
	dialed, err := connect.Dial(cmd)
	harness.Must(t, err)
	defer dialed.Close()
	c, f := &connection{dialed}, claimFlags{ttl: time.Hour}
	claim, err := c.makeClaim(t.Context(), f.request(cmd, "claim"))
	harness.Must(t, err)
	req := &models.LockRequest{Resource: &models.Resource{Key: "lock", Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 3600}
	lock, err := c.Lock(t.Context(), req)
	harness.Must(t, err)
	dialed.LocketClient = denying{dialed.LocketClient}
	for _, err := range []error{c.holdClaim(cmd, f, claim), c.holdLock(cmd, req, lock.GetToken())} {
		if err == nil {
			t.Error("it was kept")
		}
	}
	if left := server.run("claims", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A claim that no server has withdrawn is named.
func TestHoldInterruptedWithoutServer(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	c.run("lock", "taken", "--owner", "me", "--ttl", "5m")
	h := holdOf(t, server.Address(), "claim", "taken")
	h.says("waits for its turn")
	server.Kill()
	h.ends(syscall.SIGINT, exit.Interrupted, "to see it: locket resource taken")
}

// With nohup what is held stays so when the terminal closes.
func TestHoldNohup(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	for says, args := range map[string][]string{
		`"lock" is held`: {"lock", "lock", "--hold", "--ttl", "15s"}, `"claim" is held`: {"claim", "claim", "--hold", "--ttl", "15s"},
	} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			h := newHeld(t, server.Address(), args...)
			h.cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", h.cmd.Path}, h.cmd.Args[1:]...)
			h.cmd.Path = "/bin/sh"
			h.start()
			h.says(says)
			harness.Must(t, h.cmd.Process.Signal(syscall.SIGHUP))
			h.renewed(server, args[1])
			h.ends(syscall.SIGINT, exit.OK, "is released")
		})
	}
}

// A holder whose messages nobody reads any more goes on, and releases what it holds.
func TestHoldUnread(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	c.run("lock", "taken", "--owner", "me", "--ttl", "5m")
	h := newHeld(t, server.Address(), "claim", "taken", "--hold", "--ttl", "15s")
	messages, stderr, err := os.Pipe()
	harness.Must(t, err)
	h.cmd.Stderr = stderr
	h.start()
	harness.Must(t, stderr.Close())
	if line, err := bufio.NewReader(messages).ReadString('\n'); err != nil || !strings.Contains(line, "waits for its turn") {
		t.Fatalf("%q, %v", line, err)
	}
	harness.Must(t, messages.Close())
	c.run("release", "taken", "--owner", "me")
	h.printed("it holds", func(text string) bool { return strings.Contains(text, "active") })
	h.renewed(server, "taken")
	h.ends(syscall.SIGINT, exit.OK, "")
	c.run("lock", "taken", "--owner", "other")
}

// A holder whose lock is lost prints why, and ends with exit.Lost.
func TestHoldLost(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	revoked := holdOf(t, server.Address(), "lock", "revoked", "--ttl", "15s")
	revoked.says("is held, with token")
	c.run("revoke", strings.TrimSpace(c.run("claims", "--resource", "revoked", "-o", "name")))
	revoked.ends(0, exit.Lost, `"revoked" is lost: the claim was revoked; to see who holds it`)

	proxy := fixtures.NewProxy(t, server.Address())
	kept := holdOf(t, proxy.Addr(), "claim", "kept", "--ttl", "2m")
	late := holdOf(t, proxy.Addr(), "lock", "late", "--ttl", "10s")
	kept.says("is held, with token")
	late.says("is held, with token")
	proxy.Cut()
	late.ends(0, exit.Lost, "no renewal succeeded in time")
	late.says("could not be renewed")
	late.says("no answer from " + proxy.Addr() + ": does the server run?")
	proxy.Restore()
	kept.ends(syscall.SIGINT, exit.OK, "is released")

	holdOf(t, "127.0.0.1:1", "lock", "k").ends(0, exit.Failure, "connection refused")
}
