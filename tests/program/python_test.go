package program_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	python         = "/usr/bin/python3" // Debian's own, which has Debian's packages
	pythonPackages = "apt-get install -y --no-install-recommends protobuf-compiler protobuf-compiler-grpc python3-grpcio python3-protobuf"
)

// The example works with stubs generated from only models/locket.proto.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	folder := pythonStubs(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)

	before := harness.Lock(t, client, "report", "somebody", time.Hour)
	output, err := runExample(folder, server.Address(), "report")
	if err == nil || !strings.Contains(output, "somebody else holds report") {
		t.Errorf("on a lock that is taken: %v, %s", err, output)
	}
	if _, err := client.Release(t.Context(), &models.ReleaseRequest{Resource: &models.Resource{Key: "report", Owner: "somebody"}}); err != nil {
		t.Fatal(err)
	}

	output, err = runExample(folder, server.Address(), "report")
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if token, err := strconv.ParseUint(strings.TrimSpace(output), 10, 64); err != nil || token <= before {
		t.Errorf("it printed %q, want a token above %d", output, before)
	}
	if _, err := client.Fetch(t.Context(), &models.FetchRequest{Key: "report"}); status.Code(err) != codes.NotFound {
		t.Errorf("the lock was not released: %v", err)
	}
	if n := len(harness.ListAll(t, client)); n != 2 {
		t.Errorf("%d claims, want that of each holder", n)
	}
}

// pythonStubs returns a folder with the stubs, which are generated once, from a copy of the .proto and nothing else.
func pythonStubs(t *testing.T) string {
	t.Helper()
	folder, err := stubs()
	if err != nil {
		t.Fatalf("%v\ninstall what it needs with: %s", err, pythonPackages)
	}
	return folder
}

var stubs = sync.OnceValues(func() (folder string, err error) {
	if folder, err = os.MkdirTemp("", "locket-stubs-"); err != nil {
		return "", err
	}
	removeStubs = func() { _ = os.RemoveAll(folder) }
	proto, err := os.ReadFile("../../models/locket.proto")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "locket.proto"), proto, 0o600); err != nil {
		return "", err
	}
	plugin, err := exec.LookPath("grpc_python_plugin")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("protoc", "--python_out=.", "--grpc_python_out=.", "--plugin=protoc-gen-grpc_python="+plugin, "locket.proto")
	cmd.Dir = folder
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("protoc: %w\n%s", err, output)
	}
	if output, err := exec.Command(python, "-c", "import grpc, google.protobuf").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", python, err, output)
	}
	return folder, nil
})

// removeStubs removes the folder of the stubs, if there is one.
var removeStubs = func() {}

// runExample runs the example with the stubs of a folder.
func runExample(stubs string, args ...string) (output string, err error) {
	text, err := exampleCommand(stubs, "lock.py", args...).CombinedOutput()
	return string(text), err
}

func exampleCommand(stubs, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(python, append([]string{"../../examples/python/" + name}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// The example of a session waits for its turn, holds the lock while a command runs, and stops that when the
// lock is taken from it.
func TestPythonSession(t *testing.T) {
	t.Parallel()
	folder := pythonStubs(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	run := func(args ...string) (cmd *exec.Cmd, out *fixtures.Buffer) {
		cmd, out = exampleCommand(folder, "session.py", append([]string{server.Address(), "report"}, args...)...), &fixtures.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		harness.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd, out
	}
	says := func(out *fixtures.Buffer, what string) {
		t.Helper()
		harness.Eventually(t, func() error {
			if !strings.Contains(out.String(), what) {
				return errors.New(out.String())
			}
			return nil
		})
	}
	first, firstOut := run("sleep", "60")
	says(firstOut, "report HOLDING_HELD")
	second, secondOut := run("sh", "-c", "sleep 0.5; exit 7")
	says(secondOut, "report HOLDING_WAITING 0")
	held := harness.ListAll(t, client)[0]
	if _, err := client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: held.GetId(), Status: models.Status_STATUS_REVOKED}); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil || !strings.Contains(firstOut.String(), "the lock is lost") {
		t.Errorf("%v: %s", err, firstOut)
	}
	says(secondOut, "report HOLDING_HELD")
	if _ = second.Wait(); second.ProcessState.ExitCode() != 7 {
		t.Errorf("status %d: %s", second.ProcessState.ExitCode(), secondOut)
	}
	if list, err := client.ListSessions(t.Context(), &models.ListSessionsRequest{}); err != nil || len(list.GetSessions()) > 1 {
		t.Errorf("the second session was not closed: %v, %v", list, err)
	}
}

// TestPythonConnectsAgain: an example whose first connection fails tries again.
func TestPythonConnectsAgain(t *testing.T) {
	t.Parallel()
	folder := pythonStubs(t)
	server := fixtures.StartLocket(t, harness.Embedded(t))
	for _, args := range [][]string{{"lock.py", "a"}, {"session.py", "b", "true"}} {
		cmd := exampleCommand(folder, args[0], append([]string{dropsFirst(t, server.Address())}, args[1:]...)...)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", args[0], err, text)
		}
	}
}

// dropsFirst returns an address of target that drops its first connection.
func dropsFirst(t *testing.T, target string) string {
	t.Helper()
	listener := fixtures.Listen(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		if first, err := listener.Accept(); err == nil {
			_ = first.Close()
		}
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	return listener.Addr().String()
}

// crossingEvents is a server that sends older events after an answer that the lock is held. When takeAway is closed,
// it revokes the lock.
type crossingEvents struct {
	models.UnimplementedLocketServer
	takeAway chan struct{}
}

func (s *crossingEvents) Session(stream models.Locket_SessionServer) error {
	beats := &beating{stream: stream}
	go beats.answer()
	defer beats.end()
	tell := func(version uint64, previous, current models.Holding) error {
		status := &models.SessionStatus{Resource: "report", Previous: previous, Current: current, Token: version, Version: version}
		return beats.send(&models.SessionResponse{Event: &models.SessionResponse_Status{Status: status}})
	}
	err := errors.Join(
		tell(1, models.Holding_HOLDING_NONE, models.Holding_HOLDING_WAITING),
		tell(3, models.Holding_HOLDING_WAITING, models.Holding_HOLDING_HELD),
		tell(2, models.Holding_HOLDING_HELD, models.Holding_HOLDING_NONE),
		tell(0, models.Holding_HOLDING_HELD, models.Holding_HOLDING_NONE),
	)
	<-s.takeAway
	return errors.Join(err, tell(4, models.Holding_HOLDING_HELD, models.Holding_HOLDING_NONE), tell(5, models.Holding_HOLDING_NONE, models.Holding_HOLDING_HELD))
}

// beating answers the heartbeats of a stream, beside other messages.
type beating struct {
	stream  models.Locket_SessionServer
	sending sync.Mutex
	over    bool
}

func (b *beating) send(response *models.SessionResponse) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if b.over {
		return io.EOF
	}
	return b.stream.Send(response)
}

func (b *beating) answer() {
	for request, err := b.stream.Recv(); err == nil; request, err = b.stream.Recv() {
		if request.GetHeartbeat() != nil {
			_ = b.send(&models.SessionResponse{Sequence: request.GetSequence(), Event: &models.SessionResponse_Heartbeat{Heartbeat: &models.Heartbeat{}}})
		}
	}
}

// end is called at the end of the stream, when nothing may be sent any more.
func (b *beating) end() {
	b.sending.Lock()
	defer b.sending.Unlock()
	b.over = true
}

// TestPythonSessionVersions: the example of a session ignores events with older versions.
func TestPythonSessionVersions(t *testing.T) {
	t.Parallel()
	listener := fixtures.Listen(t)
	server, events := grpc.NewServer(), &crossingEvents{takeAway: make(chan struct{})}
	models.RegisterLocketServer(server, events)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	file := filepath.Join(t.TempDir(), "go on")
	e := begin(t, exampleCommand(pythonStubs(t), "session.py", listener.Addr().String(), "report", "sh", "-c",
		`trap "echo told to stop; exit" TERM; echo working; until [ -e "$0" ]; do sleep 0.05; done; echo done; while :; do sleep 0.05; done`, file))
	e.says(t, "working")
	harness.Must(t, os.WriteFile(file, nil, 0o600)) // so it runs on after all of the old events
	e.says(t, "done")
	close(events.takeAway)
	if code := e.exit(t); code != 1 || strings.ReplaceAll(e.text(), "Terminated\n", "") != "report HOLDING_WAITING 1\nreport HOLDING_HELD 3\nworking\ndone\nreport HOLDING_NONE 4\ntold to stop\nthe lock is lost\n" {
		t.Errorf("exit code %d, %q", code, e.text())
	}
}
