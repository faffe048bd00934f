package program_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// object is a JSON object.
type object map[string]any

// keychainProcess is a `locket keychain` and its client.
type keychainProcess struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  strings.Builder // to be read once it has ended
	notices chan object
	ended   chan struct{}

	mu      sync.Mutex
	serial  int
	answers map[string]chan object // by serial, as JSON
	order   []string               // of the answers: their serials
}

// startKeychain starts a keychain for the server at a URL.
func startKeychain(t *testing.T, url string, args ...string) *keychainProcess {
	t.Helper()
	return attachKeychain(t, keychainCommand(t, url, args...))
}

func keychainCommand(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(fixtures.LocketProgram(t), append([]string{"keychain", "--url", url, "--release-timeout", "1m"}, args...)...)
	cmd.Env = fixtures.CleanEnv()
	return cmd
}

// attachKeychain starts a command with a keychain's standard input and output.
func attachKeychain(t *testing.T, cmd *exec.Cmd) *keychainProcess {
	t.Helper()
	p := &keychainProcess{t: t, cmd: cmd, notices: make(chan object, 1000), answers: make(map[string]chan object), ended: make(chan struct{})}
	var err error
	p.stdin, err = cmd.StdinPipe()
	harness.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	harness.Must(t, err)
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	harness.Must(t, cmd.Start())
	go func() {
		defer close(p.ended)
		p.read(stdout)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return p
}

// read reads the keychain's answers and notices until it has ended, and fails for any other output.
func (p *keychainProcess) read(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if line != "" {
				p.t.Errorf("its output ends with %q", line)
			}
			break
		}
		var message object
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&message); err != nil {
			p.t.Errorf("it says %q: %v", line, err)
			continue
		}
		if serial, answer := message["serial"]; answer {
			p.mu.Lock()
			p.order = append(p.order, jsonOf(serial))
			p.mu.Unlock()
			p.answer(jsonOf(serial)) <- message
		} else {
			p.notices <- message
		}
	}
}

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// answer returns the channel for the answer to a request.
func (p *keychainProcess) answer(serial string) chan object {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers[serial] == nil {
		p.answers[serial] = make(chan object, 10)
	}
	return p.answers[serial]
}

// write sends bytes as they are.
func (p *keychainProcess) write(text string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, text)
	harness.Must(p.t, err)
}

// begin sends a request, and returns its serial.
func (p *keychainProcess) begin(command, resource string, args any) (serial string) {
	p.t.Helper()
	p.mu.Lock()
	p.serial++
	n := p.serial
	p.mu.Unlock()
	p.write(jsonOf(object{"command": command, "resource_name": resource, "serial": n, "args": args}) + "\n")
	return fmt.Sprint(n)
}

// await returns the answer to a request.
func (p *keychainProcess) await(serial string) object {
	p.t.Helper()
	select {
	case message := <-p.answer(serial):
		return message
	case <-time.After(harness.HangTimeout):
		p.t.Fatalf("no answer to %s", serial)
		return nil
	}
}

// call sends a request and returns its answer.
func (p *keychainProcess) call(command, resource string, args any) object {
	p.t.Helper()
	return p.await(p.begin(command, resource, args))
}

// do is call that fails the test if the request fails.
func (p *keychainProcess) do(command, resource string, args any) object {
	p.t.Helper()
	answer := p.call(command, resource, args)
	wantSucceeded(p.t, answer)
	return answer
}

func wantSucceeded(t *testing.T, answer object) {
	t.Helper()
	if answer["result"] != "succeeded" || answer["error_message"] != nil {
		t.Fatalf("the answer is %v", answer)
	}
}

// wantFailed checks that an answer is a failure with each of the words.
func wantFailed(t *testing.T, answer object, words ...string) {
	t.Helper()
	message, _ := answer["error_message"].(string)
	if answer["result"] != "failed" || message == "" {
		t.Errorf("the answer is %v", answer)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("it says nothing of %q: %v", word, answer)
		}
	}
}

// notice returns the next notice: a message that is not an answer.
func (p *keychainProcess) notice() object {
	p.t.Helper()
	select {
	case message := <-p.notices:
		return message
	case <-time.After(harness.HangTimeout):
		p.t.Fatal("no notice")
		return nil
	}
}

// exit waits for the end of the process, and returns its exit code.
func (p *keychainProcess) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(harness.HangTimeout):
		p.t.Fatal("it still runs")
		return 0
	}
}

// wantExit checks how the process ends, and what it has logged.
func (p *keychainProcess) wantExit(code int, logged string) {
	p.t.Helper()
	if got := p.exit(); got != code || !strings.Contains(p.stderr.String(), logged) {
		p.t.Errorf("exit code %d, want %d; it logs %q, want %q", got, code, p.stderr.String(), logged)
	}
}
