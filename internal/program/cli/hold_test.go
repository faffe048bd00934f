package cli

import (
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
	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/internal/program/cli/run"
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

// renewed waits for the next renewal of the lock or claim.
func (h *held) renewed(server *fixtures.Locket, name string) {
	h.t.Helper()
	client := server.Client(h.t)
	version := func() uint64 {
		claims, err := harness.Answered(h.t, func() (*models.ListClaimsResponse, error) {
			return client.ListClaims(h.t.Context(), &models.ListClaimsRequest{Resource: &name, Status: live})
		})
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

// commands hold NAME until they get a signal, and print a line once they hold it. The first two never wait for it.
var commands = map[string][]string{
	"lock":      {"lock", "NAME", "--hold"},
	"no-wait":   {"claim", "NAME", "--hold", "--no-wait"},
	"claim":     {"claim", "NAME", "--hold"},
	"elect":     {"elect", "NAME"},
	"run":       {"run", "NAME", "--", "sh", "-c", "echo runs; exec sleep 1000"},
	"elect-run": {"elect", "NAME", "--", "sh", "-c", "echo runs; exec sleep 1000"},
}

// waits reports whether a command waits for its turn.
func waits(command string) bool { return command != "lock" && command != "no-wait" }

// runs reports whether a command runs another one, whose status is its own.
func runs(command string) bool { return strings.HasSuffix(command, "run") }

// lineOf returns a command line that holds a resource, with some flags.
func lineOf(command, resource string, flags ...string) []string {
	line := append([]string{commands[command][0], resource}, flags...)
	return append(line, commands[command][2:]...)
}

// keeps starts a command that holds a resource.
func keeps(t *testing.T, address, command, resource string, flags ...string) *held {
	t.Helper()
	return startHeld(t, address, lineOf(command, resource, flags...)...)
}

// holds waits until a command holds its resource.
func (h *held) holds() {
	h.t.Helper()
	h.printed("that it holds", func(text string) bool { return text != "" })
}

// each runs a test of every command, at once, with a resource that is called like the command.
func each(t *testing.T, test func(t *testing.T, command string)) {
	for command := range commands {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			test(t, command)
		})
	}
}

// What is held is renewed, and is free at once after a signal.
func TestHold(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	each(t, func(t *testing.T, command string) {
		c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			name := fmt.Sprint(command, int(sig))
			h := keeps(t, server.Address(), command, name, "--ttl", "15s")
			h.holds()
			if sig == syscall.SIGINT {
				h.renewed(server, name)
			}
			if _, stderr, status := c.try("lock", name, "--owner", "other"); status != exit.Held {
				t.Errorf("it is free: %d, %s", status, stderr)
			}
			status := exit.OK
			if runs(command) {
				status = exit.Signal + int(sig)
			}
			h.ends(sig, status, "")
			c.run("lock", name, "--owner", "other")
		}
	})
}

// While another owner holds the resource a command waits, or ends and says who that is.
func TestHoldTaken(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	each(t, func(t *testing.T, command string) {
		c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
		c.run("lock", command, "--owner", "me", "--ttl", "5m")
		if !waits(command) {
			keeps(t, server.Address(), command, command).ends(0, exit.Held, `held by "me"`)
			return
		}
		queue := func(text string) {
			t.Helper()
			harness.Eventually(t, func() error {
				if queue := c.run("resource", command); !strings.Contains(queue, text) {
					return fmt.Errorf("%s", queue)
				}
				return nil
			})
		}
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			h := keeps(t, server.Address(), command, command)
			queue("1 wait")
			status := exit.Interrupted
			if runs(command) {
				status = exit.Signal + int(sig)
			}
			h.ends(sig, status, "")
			queue("is held by me\n")
		}
		h := keeps(t, server.Address(), command, command)
		queue("1 wait")
		c.run("release", command, "--owner", "me")
		h.holds()
		h.ends(syscall.SIGINT, map[bool]int{false: exit.OK, true: exit.Interrupted}[runs(command)], "")
		queue("is free")
	})
	for command, status := range map[string]int{"claim": exit.Held, "run": run.NotAcquired} {
		t.Run(command+" --wait", func(t *testing.T) {
			t.Parallel()
			c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
			c.run("lock", "wait/"+command, "--owner", "me", "--ttl", "5m")
			h := keeps(t, server.Address(), command, "wait/"+command, "--wait", "300ms")
			h.ends(0, status, "was not acquired within 300ms")
			h.says(`held by "me"`)
		})
	}
}

// A command that waits while no server can be reached goes on waiting, and gets its turn. Without a terminal, commands that keep the resource themselves
// name the holder once.
func TestWaitBesideOutage(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	lines := map[string]string{"claim --wait": "claim NAME --wait 1h", "get": "get NAME --wait 1h"}
	for command := range commands {
		if waits(command) {
			lines[command] = strings.Join(lineOf(command, "NAME"), " ")
		}
	}
	for command, line := range lines {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
			proxy := fixtures.NewProxy(t, server.Address())
			name := strings.ReplaceAll(command, " ", "")
			c.run("lock", name, "--owner", "me", "--ttl", "5m")
			if command == "get" {
				c.queue("claim", name, "--id", name)
			}
			args := strings.Fields(line)
			if runs(command) {
				args = lineOf(command, "NAME")
			}
			args[1] = name
			h := startHeld(t, proxy.Addr(), args...)
			if command == "claim" || command == "elect" {
				h.says(fmt.Sprintf(`locket: %q: held by "me", place 1 in the queue; waiting for its turn (Ctrl-C withdraws it); to see the queue: locket resource %s`, name, name))
			}
			harness.Eventually(t, func() error {
				if queue := c.run("resource", name); !strings.Contains(queue, "1 wait") {
					return fmt.Errorf("%s", queue)
				}
				return nil
			})
			proxy.Cut()
			proxy.Restore()
			c.run("release", name, "--owner", "me")
			h.holds()
			if !strings.HasSuffix(line, "1h") {
				h.ends(syscall.SIGINT, map[bool]int{false: exit.OK, true: exit.Interrupted}[runs(command)], "")
			} else {
				h.ends(0, exit.OK, "")
			}
		})
	}
}

// A command that would wait for the locket run that it runs under ends at once.
func TestWaitsForItself(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	for line, status := range map[string]int{
		"claim NAME --hold": exit.Held, "claim NAME --wait 1h": exit.Held, "elect NAME": exit.Held, "run NAME -- COMMAND": run.NotAcquired, "elect NAME -- COMMAND": run.NotAcquired,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := fieldsOf(line)
			args[1] = strings.ReplaceAll(line, " ", "_")
			h := startHeld(t, server.Address(), append([]string{"run", args[1], "--", fixtures.LocketProgram(t)}, args...)...)
			h.ends(0, status, "is held by a locket run that this command runs under, which waits for its end")
		})
	}
}

// What a request has taken is given up where the interruption came during the request, before anything could keep it.
func TestHoldInterrupted(t *testing.T) {
	t.Parallel()
	server := newCLI(t)
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	cmd := newClaimCommand()
	var stderr bytes.Buffer
	harness.Must(t, cmd.ParseFlags([]string{"--address", server.address, "--context-file", os.DevNull}))
	dialed, err := connect.Dial(cmd)
	harness.Must(t, err)
	defer dialed.Close()
	f := claimFlags{ttl: time.Hour}
	ends := func(err error) {
		t.Helper()
		status, says := exit.Finish(interrupted, io.Discard, err), stderr.String()
		if released := status == exit.OK && strings.Contains(says, "is released"); status != exit.Interrupted && !released { // it was held first
			t.Errorf("status %d: %v; it says %s", status, err, says)
		}
		stderr.Reset()
	}
	for n := range 25 { // the interruption is now and then first
		asked := f.request(cmd, fmt.Sprint("claim", n))
		claim, err := hold.Claim(t.Context(), dialed, asked)
		harness.Must(t, err)
		ends(hold.KeepClaim(interrupted, dialed, &stderr, asked, claim, 0, func(*models.Claim) error { return nil }))
		req := &models.LockRequest{Resource: &models.Resource{Key: fmt.Sprint("lock", n), Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 3600}
		lock, err := dialed.Lock(t.Context(), req)
		harness.Must(t, err)
		ends(hold.KeepLock(interrupted, dialed, &stderr, req, lock.GetToken(), func(uint64) error { return nil }))
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
		_, err := hold.Lock(ctx, dialed, req)
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
	f := claimFlags{ttl: time.Hour}
	asked := f.request(cmd, "claim")
	claim, err := hold.Claim(t.Context(), dialed, asked)
	harness.Must(t, err)
	req := &models.LockRequest{Resource: &models.Resource{Key: "lock", Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 3600}
	lock, err := dialed.Lock(t.Context(), req)
	harness.Must(t, err)
	dialed.LocketClient = denying{dialed.LocketClient}
	for _, err := range []error{
		hold.KeepClaim(t.Context(), dialed, io.Discard, asked, claim, 0, func(*models.Claim) error { return nil }),
		hold.KeepLock(t.Context(), dialed, io.Discard, req, lock.GetToken(), func(uint64) error { return nil }),
	} {
		if err == nil {
			t.Error("it was kept")
		}
	}
	if left := server.run("claims", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A command that is interrupted while no server can be reached names the claims that may stay, and for how long.
func TestHoldInterruptedWithoutServer(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
	waiting, holding := make(map[string]*held), make(map[string]*held)
	for command := range commands {
		holding[command] = keeps(t, server.Address(), command, "held/"+command, "--ttl", "1h")
		holding[command].holds()
		if waits(command) {
			c.run("lock", "taken/"+command, "--owner", "me", "--ttl", "5m")
			waiting[command] = keeps(t, server.Address(), command, "taken/"+command)
			harness.Eventually(t, func() error {
				if queue := c.run("resource", "taken/"+command); !strings.Contains(queue, "1 wait") {
					return fmt.Errorf("%s", queue)
				}
				return nil
			})
		}
	}
	server.Kill()
	each(t, func(t *testing.T, command string) {
		status := exit.Failure
		if runs(command) {
			status = exit.Interrupted
		}
		holding[command].ends(syscall.SIGINT, status, `no server can be reached to release "held/`+command+`"; it ends by itself within `)
		if waits(command) {
			waiting[command].ends(syscall.SIGINT, exit.Interrupted, `no server can be reached to release "taken/`+command+`"; it ends by itself within 1m`)
		}
	})
}

// With nohup what is held stays so when the terminal closes.
func TestHoldNohup(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	each(t, func(t *testing.T, command string) {
		h := newHeld(t, server.Address(), lineOf(command, command, "--ttl", "15s")...)
		h.cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", h.cmd.Path}, h.cmd.Args[1:]...)
		h.cmd.Path = "/bin/sh"
		h.start()
		h.holds()
		harness.Must(t, h.cmd.Process.Signal(syscall.SIGHUP))
		h.renewed(server, command)
		h.ends(syscall.SIGINT, map[bool]int{false: exit.OK, true: exit.Interrupted}[runs(command)], "")
	})
}

// A command whose messages nobody reads any more goes on, and releases what it holds.
func TestHoldUnread(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	each(t, func(t *testing.T, command string) {
		c := &cli{t: t, address: server.Address(), stable: newStabilizer()}
		h := newHeld(t, server.Address(), lineOf(command, command, "--ttl", "15s")...)
		messages, stderr, err := os.Pipe()
		harness.Must(t, err)
		h.cmd.Stderr = stderr
		harness.Must(t, messages.Close())
		h.start()
		harness.Must(t, stderr.Close())
		h.holds()
		h.renewed(server, command)
		h.ends(syscall.SIGINT, map[bool]int{false: exit.OK, true: exit.Interrupted}[runs(command)], "")
		c.run("lock", command, "--owner", "other")
	})
}

// A command that cannot renew says so, and goes on when it can again; when the lease is about to end it ends.
func TestHoldLost(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	proxy := fixtures.NewProxy(t, server.Address())
	kept, late := make(map[string]*held), make(map[string]*held)
	for command := range commands {
		kept[command] = keeps(t, proxy.Addr(), command, "kept/"+command, "--ttl", "2m")
		late[command] = keeps(t, proxy.Addr(), command, "late/"+command, "--ttl", "15s")
	}
	for command := range commands {
		kept[command].holds()
		late[command].holds()
	}
	proxy.Cut()
	for command, h := range late {
		if runs(command) {
			h.ends(0, run.Lost, "cannot be renewed")
			continue
		}
		h.ends(0, exit.Lost, `"late/`+command+`" is lost: no renewal succeeded in time`)
		h.says("could not be renewed")
		h.says("no answer from " + proxy.Addr() + ": does the server run?")
	}
	proxy.Restore()
	for command, h := range kept {
		h.ends(syscall.SIGINT, map[bool]int{false: exit.OK, true: exit.Interrupted}[runs(command)], "")
	}
	for _, command := range []string{"lock", "claim", "elect"} {
		keeps(t, "127.0.0.1:1", command, "k").ends(0, exit.Failure, "connection refused")
	}
}
