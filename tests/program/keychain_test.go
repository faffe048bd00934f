package program_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/program/cli/pipe"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

func httpURL(server *fixtures.Locket) string { return "http://" + server.HTTPAddress() }

// revoke revokes a claim.
func revoke(t *testing.T, client models.LocketClient, id any) {
	t.Helper()
	_, err := client.UpdateClaim(context.WithoutCancel(t.Context()), &models.UpdateClaimRequest{Id: id.(string), Status: models.Status_STATUS_REVOKED})
	harness.Must(t, err)
}

// has reports whether a claim has this TTL. Some of it has passed, since a keychain renews a claim when a third has; time
// without commits does not count.
func has(c *models.Claim, ttl float64) bool { return c.GetTtl() > ttl/2 && c.GetTtl() < ttl+10 }

func TestKeychain(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	client := server.Client(t)
	url := httpURL(server)
	for name, test := range map[string]func(t *testing.T, client models.LocketClient, url string){
		"commands":        testKeychainCommands,
		"args":            testKeychainArgs,
		"wrong requests":  testKeychainWrongRequests,
		"wrong stream":    testKeychainWrongStream,
		"any serial":      testKeychainSerials,
		"out of order":    testKeychainOutOfOrder,
		"withdraw":        testKeychainWithdraw,
		"in a row":        testKeychainInARow,
		"many":            testKeychainMany,
		"original client": testKeychainOriginalClient,
		"shutdown":        testKeychainShutdown,
		"end of input":    testKeychainEndOfInput,
		"no reader":       testKeychainNoReader,
		"signals":         testKeychainSignals,
		"lost":            testKeychainLost,
		"lost, no notice": testKeychainLostWithoutNotice,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client, url)
		})
	}
}

func testKeychainCommands(t *testing.T, client models.LocketClient, url string) {
	const resource = "commands: ä\u2028<&>\x7f"
	p := startKeychain(t, url)
	p.do("ping", "", nil)
	claim := p.do("claim", resource, object{"user_data": object{"host": "a7"}, "ttl": 30})
	held := claimsOf(t, client, resource)
	if len(held) != 1 || held[0].GetStatus() != models.Status_STATUS_ACTIVE || !has(held[0], 30) || held[0].GetUserData() != `{"host":"a7"}` {
		t.Errorf("claims %v", held)
	}
	if claim["id"] != held[0].GetId() || jsonOf(claim["token"]) != fmt.Sprint(held[0].GetToken()) || claim["resource_name"] != resource || claim["command"] != "claim" {
		t.Errorf("the answer is %v, the claim %v", claim, held[0])
	}
	p.do("validate", resource, nil)
	wantFailed(t, p.call("claim", resource, nil), "claimed already")
	p.do("release", resource, nil)
	if status := claimsOf(t, client, resource)[0].GetStatus(); status != models.Status_STATUS_RELEASED {
		t.Errorf("the claim is %s", status)
	}
	wantFailed(t, p.call("release", resource, nil), "not claimed")
	wantFailed(t, p.call("validate", resource, nil), "not claimed")
	p.do("claim", resource, nil)
	p.do("shutdown", "", nil)
	p.wantExit(0, "")
	if claims := claimsOf(t, client, resource); len(claims) != 2 || claims[1].GetStatus() != models.Status_STATUS_RELEASED {
		t.Errorf("claims %v", claims)
	}
}

func testKeychainArgs(t *testing.T, client models.LocketClient, url string) {
	p := startKeychain(t, url, "--ttl", "45s")
	p.do("claim", "args", object{"mode": "shared", "owner": "me", "timeout": "60", "user_data": "x", "ttl": "2.5e1"})
	p.do("claim", "args, null", object{"mode": nil, "owner": nil, "timeout": nil, "user_data": nil, "ttl": nil})
	p.await(p.begin("claim", "args, none", nil))
	c := claimsOf(t, client, "args")[0]
	if c.GetMode() != models.Mode_MODE_SHARED || c.GetOwner() != "me" || c.GetUserData() != `"x"` || !has(c, 25) {
		t.Errorf("%v", c)
	}
	for _, name := range []string{"args, null", "args, none"} {
		if c := claimsOf(t, client, name)[0]; c.GetMode() != models.Mode_MODE_EXCLUSIVE || c.GetOwner() != "" || c.UserData != nil || !has(c, 45) {
			t.Errorf("%s: %v", name, c)
		}
	}
	harness.Create(t, client, "args, taken", "args-taken", time.Hour)
	wantFailed(t, p.call("claim", "args, taken", object{"timeout": 0.05}), "not active in time")
	wantFailed(t, startKeychain(t, url, "--timeout", "50ms").call("claim", "args, taken", nil), "not active in time")
	p.write(`{"command": "claim", "resource_name": 4.50, "serial": "number"}`)
	wantSucceeded(t, p.await(`"number"`))
	if n := len(claimsOf(t, client, "4.50")); n != 1 {
		t.Errorf("%d claims of what a number names", n)
	}
}

func testKeychainWrongRequests(t *testing.T, _ models.LocketClient, url string) {
	p := startKeychain(t, url)
	for request, words := range map[string]string{
		`"command": "nosuch"`:                                                   `"nosuch"`,
		`"command": ""`:                                                         "unknown",
		`"command": null`:                                                       "command is not a string",
		`"Command": "ping"`:                                                     "command is missing",
		`"command": "claim"`:                                                    "resource_name is missing",
		`"command": "claim", "resource_name": ""`:                               "resource_name is missing",
		`"command": "claim", "resource_name": null`:                             "resource_name is missing",
		`"command": "claim", "resource_name": {}`:                               "resource_name is not a string",
		`"command": "claim", "resource_name": true`:                             "resource_name is not a string",
		`"command": "claim", "resource_name": "\ud800"`:                         "not Unicode",
		"\"command\": \"claim\", \"resource_name\": \"\xff\"":                   "not UTF-8",
		`"command": "release"`:                                                  "resource_name is missing",
		`"command": "validate"`:                                                 "resource_name is missing",
		`"command": "claim", "resource_name": "a", "args": []`:                  "args are not an object",
		`"command": "claim", "resource_name": "a", "args": {"tll": 1}`:          "tll: unknown",
		`"command": "claim", "resource_name": "a", "args": {"ttl": []}`:         "ttl: not a number",
		`"command": "claim", "resource_name": "a", "args": {"ttl": ""}`:         "ttl",
		`"command": "claim", "resource_name": "a", "args": {"ttl": 0}`:          "more than 0",
		`"command": "claim", "resource_name": "a", "args": {"ttl": .5}`:         "not JSON",
		`"command": "claim", "resource_name": "a", "args": {"ttl": 0.5}`:        "1s to 100 years",
		`"command": "claim", "resource_name": "a", "args": {"ttl": 1e999}`:      "100 years",
		`"command": "claim", "resource_name": "a", "args": {"timeout": -1}`:     "more than 0",
		`"command": "claim", "resource_name": "a", "args": {"timeout": "soon"}`: "timeout: not a number",
		`"command": "claim", "resource_name": "a", "args": {"mode": "none"}`:    "exclusive or shared",
		`"command": "claim", "resource_name": "a", "args": {"owner": 1}`:        "owner: not a string",
		// Requests that the server refuses.
		`"command": "claim", "resource_name": "` + strings.Repeat("a", 2000) + `"`: "1024",
	} {
		p.write(`{"serial": "a", ` + request + `}`)
		wantFailed(t, p.await(`"a"`), words)
		p.write(`{` + request + `, "serial": "a"}`)
		if words != "not JSON" { // what follows is then not read
			wantFailed(t, p.await(`"a"`), words)
		} else if notice := p.notice(); notice["notice"] != "error" {
			t.Errorf("%v", notice)
		}
	}
	for _, serial := range []string{"null", "true", "[1]", "{}", ""} {
		p.write(strings.TrimSuffix(`{"command": "ping", "serial": `+serial, `, "serial": `) + "}\n")
		if notice := p.notice(); notice["notice"] != "error" || !strings.Contains(fmt.Sprint(notice["error_message"]), "serial") && serial != "" {
			t.Errorf("serial %s: %v", serial, notice)
		}
	}
	p.write(`{"command": "ping", "serial": 1, "result": "x", "error_message": 1, "notice": "y", "token": 2, "id": 3, "mine": [1, 2]}`)
	if got := jsonOf(p.await("1")); got != `{"command":"ping","mine":[1,2],"result":"succeeded","serial":1}` {
		t.Errorf("the answer is %s", got)
	}
}

func testKeychainWrongStream(t *testing.T, _ models.LocketClient, url string) {
	p := startKeychain(t, url)
	ping := func(serial string) string { return `{"command":"ping","serial":` + serial + `}` }
	long := strings.Repeat("a", pipe.MaxMessage)
	for i, wrong := range []string{
		"garbage\n", "{{" + ping("1") + "\n", `{"a" 1}` + ping("1") + "\n", "{\"a\": \"\n", "]\n", "1 2\n", "\"a\"\n", "\x00\xff\n", ",\n",
		strings.Repeat("[", pipe.MaxDepth+1) + "\n",
		"[]", "[" + ping("1") + "]", `{"a": nope}`, `{"a": 01, "b": [truefalse]}`, `{"args": "` + long + `"}`, `{"args": "` + long + `", "serial": 1}`,
	} {
		p.write(wrong + ping(`"after"`))
		if notice := p.notice(); notice["notice"] != "error" || notice["error_message"] == nil || len(notice) != 2 {
			t.Errorf("%d: %v", i, notice)
		}
		wantSucceeded(t, p.await(`"after"`))
	}
	for serial, wrong := range map[string]string{
		"2": `{"command": "ping", "serial": 2, "a": nope}`,
		"3": `{"command": "ping", "serial": 3 "a": 1}` + "\n",
		"4": `{"command": "ping", "serial": 4, "args": "` + long + `"}`,
		"5": "{\"command\": \"ping\", \"serial\": 5, \"args\": \"\xff\"}",
	} {
		p.write(wrong)
		wantFailed(t, p.await(serial))
	}
	p.write("\n\n  " + ping("6") + "\r\n\t" + "{\n\"command\"\n:\n\"ping\",\"serial\":7\n}" + ping("8"))
	for _, serial := range []string{"6", "7", "8"} {
		wantSucceeded(t, p.await(serial))
	}
	if len(p.notices) > 0 {
		t.Errorf("%v", <-p.notices)
	}
	p.write(`{"command": "ping"`)
	harness.Must(t, p.stdin.Close())
	p.wantExit(0, "unexpected EOF")
}

func testKeychainSerials(t *testing.T, _ models.LocketClient, url string) {
	p := startKeychain(t, url)
	for _, serial := range []string{"0", "-1", "1e400", "12345678901234567890123", "1.50", `""`, `"a<b>"`, `"ä"`, `"1"`} {
		p.write(`{"serial": ` + serial + `, "command": "ping"}`)
		if answer := p.await(readSerial(t, serial)); jsonOf(answer["serial"]) != readSerial(t, serial) {
			t.Errorf("serial %s: %v", serial, answer)
		}
	}
}

// readSerial returns a serial as the tests' client reads it.
func readSerial(t *testing.T, serial string) string {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(serial))
	decoder.UseNumber()
	var value any
	harness.Must(t, decoder.Decode(&value))
	return jsonOf(value)
}

// A claim that waits blocks no other request.
func testKeychainOutOfOrder(t *testing.T, client models.LocketClient, url string) {
	harness.Create(t, client, "order", "order-before", time.Hour)
	p := startKeychain(t, url)
	waiting := p.begin("claim", "order", nil)
	wantStatus(t, client, "order", 2, models.Status_STATUS_WAITING)
	wantFailed(t, p.call("claim", "order", nil), "being claimed already")
	wantFailed(t, p.call("validate", "order", nil), "not ours yet")
	p.do("ping", "", nil)
	p.do("claim", "order, another", nil)
	harness.Release(t, client, "order-before")
	wantSucceeded(t, p.await(waiting))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order[len(p.order)-1] != waiting {
		t.Errorf("answers in the order %q", p.order)
	}
}

// The release of a claim that waits withdraws it; both requests are answered.
func testKeychainWithdraw(t *testing.T, client models.LocketClient, url string) {
	harness.Create(t, client, "withdraw", "withdraw-before", time.Hour)
	p := startKeychain(t, url)
	for i := range 3 {
		waiting := p.begin("claim", "withdraw", nil)
		wantStatus(t, client, "withdraw", i+2, models.Status_STATUS_WAITING)
		p.do("release", "withdraw", nil)
		wantFailed(t, p.await(waiting), "withdrawn")
		wantStatus(t, client, "withdraw", i+2, models.Status_STATUS_WITHDRAWN)
	}
}

// Requests that are written without waiting for answers are carried out in their order.
func testKeychainInARow(t *testing.T, client models.LocketClient, url string) {
	p := startKeychain(t, url)
	p.do("claim", "row", nil)
	harness.Create(t, client, "row, taken", "row-before", time.Hour)
	for range 20 {
		released, claimed := p.begin("release", "row", nil), p.begin("claim", "row", nil)
		wantSucceeded(t, p.await(released))
		wantSucceeded(t, p.await(claimed))
		waits, withdrawn := p.begin("claim", "row, taken", nil), p.begin("release", "row, taken", nil)
		wantFailed(t, p.await(waits))
		wantSucceeded(t, p.await(withdrawn))
	}
	p.do("shutdown", "", nil)
	for _, resource := range []string{"row", "row, taken"} {
		for _, c := range claimsOf(t, client, resource) {
			if status := c.GetStatus(); c.GetId() != "row-before" && (status == models.Status_STATUS_ACTIVE || status == models.Status_STATUS_WAITING) {
				t.Errorf("left behind: %v", c)
			}
		}
	}
}

func testKeychainMany(t *testing.T, client models.LocketClient, url string) {
	const n = 300
	p := startKeychain(t, url)
	name := func(i int) string { return fmt.Sprintf("many-%d", i) }
	for _, command := range []string{"claim", "validate", "release", "claim"} {
		serials := make([]string, n)
		for i := range serials {
			serials[i] = p.begin(command, name(i), nil)
		}
		for _, serial := range serials {
			wantSucceeded(t, p.await(serial))
		}
	}
	p.do("shutdown", "", nil)
	p.wantExit(0, "")
	for i := range n {
		if claims := claimsOf(t, client, name(i)); len(claims) != 2 || claims[1].GetStatus() != models.Status_STATUS_RELEASED {
			t.Fatalf("claims %v", claims)
		}
	}
}

// The original's clients write their objects without separators, send null for missing args,
// and fail at a message with an unknown serial.
func testKeychainOriginalClient(t *testing.T, client models.LocketClient, url string) {
	p := startKeychain(t, url)
	p.write(`{"command":"ping","serial":1,"resource_name":""}` +
		`{"args":{"user_data":null,"ttl":60},"serial":2,"resource_name":"original","command":"claim"}` +
		`{"resource_name":"original","args":{"ttl":1,"user_data":{"pid":4711,"host":"blade9"}},"command":"claim","serial":3}`)
	wantSucceeded(t, p.await("1"))
	wantSucceeded(t, p.await("2"))
	wantFailed(t, p.await("3"), "already")
	revoke(t, client, claimsOf(t, client, "original")[0].GetId())
	p.write(`{"command":"release","serial":4,"resource_name":"original"}{"command":"validate","serial":5,"resource_name":"original"}`)
	p.await("4") // the claim may have been lost before
	wantFailed(t, p.await("5"))
	p.write(`{"serial":6,"command":"shutdown","resource_name":""}`)
	wantSucceeded(t, p.await("6"))
	if code := p.exit(); code != 0 || len(p.notices) > 0 {
		t.Errorf("exit code %d, %d notices", code, len(p.notices))
	}
}

// The answer to shutdown is the last one.
func testKeychainShutdown(t *testing.T, client models.LocketClient, url string) {
	harness.Create(t, client, "shutdown, taken", "shutdown-before", time.Hour)
	p := startKeychain(t, url, "--notices", "--signal-parent=KILL")
	p.do("claim", "shutdown", nil)
	waiting := p.begin("claim", "shutdown, taken", nil)
	wantStatus(t, client, "shutdown, taken", 2, models.Status_STATUS_WAITING)
	p.write(`{"command":"shutdown","serial":"end"}{"command":"ping","serial":"late"}`)
	wantFailed(t, p.await("2"), "closed")
	wantFailed(t, p.await(`"late"`), "shuts down")
	wantSucceeded(t, p.await(`"end"`))
	p.wantExit(0, "")
	if last := p.order[len(p.order)-1]; last != `"end"` || len(p.notices) > 0 || waiting != "2" {
		t.Errorf("answers in the order %q, %d notices", p.order, len(p.notices))
	}
	wantStatus(t, client, "shutdown", 1, models.Status_STATUS_RELEASED)
	wantStatus(t, client, "shutdown, taken", 2, models.Status_STATUS_WITHDRAWN)
}

func testKeychainEndOfInput(t *testing.T, client models.LocketClient, url string) {
	harness.Create(t, client, "eof, taken", "eof-before", time.Hour)
	p := startKeychain(t, url, "--notices", "--signal-parent=KILL")
	p.do("claim", "eof", nil)
	waiting := p.begin("claim", "eof, taken", nil)
	wantStatus(t, client, "eof, taken", 2, models.Status_STATUS_WAITING)
	harness.Must(t, p.stdin.Close())
	wantFailed(t, p.await(waiting), "closed")
	p.wantExit(0, "")
	wantStatus(t, client, "eof", 1, models.Status_STATUS_RELEASED)
	wantStatus(t, client, "eof, taken", 2, models.Status_STATUS_WITHDRAWN)
}

// A client that has closed the reading end is gone, even if it may still write.
func testKeychainNoReader(t *testing.T, client models.LocketClient, url string) {
	cmd := keychainCommand(t, url)
	in, err := cmd.StdinPipe()
	harness.Must(t, err)
	gone, output, err := os.Pipe()
	harness.Must(t, err)
	cmd.Stdout = output
	harness.Must(t, cmd.Start())
	harness.Must(t, output.Close())
	harness.Must(t, gone.Close())
	_, err = in.Write([]byte(`{"command":"claim","resource_name":"no reader","serial":1}`))
	harness.Must(t, err)
	done := harness.Later(cmd.Wait)
	select {
	case <-done:
	case <-time.After(harness.HangTimeout):
		t.Fatal("it still runs")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantStatus(t, client, "no reader", 1, models.Status_STATUS_ABORTED)
}

// A keychain that gets a signal tells its client which claims it loses, and releases them.
func testKeychainSignals(t *testing.T, client models.LocketClient, url string) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		resource := "signal " + sig.String()
		p := startKeychain(t, url, "--notices")
		claim := p.do("claim", resource, nil)
		harness.Must(t, p.cmd.Process.Signal(sig))
		if notice := p.notice(); notice["notice"] != "lost" || notice["id"] != claim["id"] || !strings.Contains(notice["error_message"].(string), sig.String()) {
			t.Errorf("%v", notice)
		}
		if code := p.exit(); code != 128+int(sig) {
			t.Errorf("%v: exit code %d", sig, code)
		}
		wantStatus(t, client, resource, 1, models.Status_STATUS_ABORTED)
	}
}

func testKeychainLost(t *testing.T, client models.LocketClient, url string) {
	p := startKeychain(t, url, "--notices")
	claim := p.do("claim", "lost", object{"ttl": 15})
	revoke(t, client, claim["id"])
	notice := p.notice()
	if notice["notice"] != "lost" || notice["resource_name"] != "lost" || notice["id"] != claim["id"] || notice["token"] != claim["token"] || notice["serial"] != nil ||
		!strings.Contains(notice["error_message"].(string), "lost") {
		t.Errorf("%v", notice)
	}
	harness.Eventually(t, func() error { // it is forgotten right after the notice
		if answer := p.call("release", "lost", nil); !strings.Contains(answer["error_message"].(string), "not claimed") {
			return fmt.Errorf("%v", answer)
		}
		return nil
	})
	if again := p.do("claim", "lost", nil); again["id"] == claim["id"] {
		t.Errorf("%v", again)
	}
}

// Validate asks the server, and so detects a loss before the next renewal.
func testKeychainLostWithoutNotice(t *testing.T, client models.LocketClient, url string) {
	p := startKeychain(t, url)
	claim := p.do("claim", "quiet", object{"ttl": 3600})
	revoke(t, client, claim["id"])
	wantFailed(t, p.call("validate", "quiet", nil), "lost")
	harness.Eventually(t, func() error {
		if answer := p.call("claim", "quiet", nil); answer["result"] != "succeeded" {
			return fmt.Errorf("%v", answer)
		}
		return nil
	})
	if len(p.notices) > 0 {
		t.Errorf("%v", <-p.notices)
	}
}

// While no server is reachable, a claim is retried until its timeout; and the keychain ends in time.
func TestKeychainWithoutServer(t *testing.T) {
	t.Parallel()
	p := startKeychain(t, "http://127.0.0.1:1", "--release-timeout", "1s")
	wantFailed(t, p.call("claim", "a", object{"timeout": 6}), "not active in time", "refused")
	waiting := p.begin("claim", "b", nil)
	ended := p.begin("shutdown", "", nil)
	wantFailed(t, p.await(waiting), "closed")
	p.await(ended)
	p.exit()
}

// The server is down, or does not answer, when the keychain ends.
func TestKeychainServerDownAtTheEnd(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	asked := startKeychain(t, httpURL(server), "--release-timeout", "1s")
	unasked := startKeychain(t, httpURL(server), "--release-timeout", "1s")
	asked.do("claim", "a", nil)
	unasked.do("claim", "b", nil)
	harness.Must(t, server.Pause())
	harness.Must(t, unasked.stdin.Close())
	wantFailed(t, asked.call("shutdown", "", nil), `"a"`, "not ended")
	asked.wantExit(1, "not ended")
	unasked.wantExit(1, "not ended")
}

// A service manager that stops the client often stops its keychain too: after the client's end
// the first signal leaves no claim behind.
func TestKeychainSignalAfterItsClient(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	p := startKeychain(t, httpURL(server), "--log-level", "info")
	p.do("claim", "a", nil)
	harness.Must(t, server.Pause())
	harness.Must(t, p.stdin.Close())
	time.Sleep(300 * time.Millisecond) // real time: it is ending, or gets the signal earlier
	harness.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	time.Sleep(300 * time.Millisecond) // real time: it has got the signal, or gets it later
	harness.Must(t, server.Resume())
	p.exit()
	wantStatus(t, server.Client(t), "a", 1, models.Status_STATUS_RELEASED)
}

// A second signal ends the keychain at once, also without a server.
func TestKeychainSecondSignal(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	p := startKeychain(t, httpURL(server), "--release-timeout", "1h", "--log-level", "info")
	p.do("claim", "a", nil)
	harness.Must(t, server.Pause())
	harness.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	for {
		select {
		case <-p.ended:
			p.wantExit(1, "not ended")
			return
		case <-time.After(100 * time.Millisecond): // real time: between two signals
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

func TestKeychainRefusals(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "credential")
	harness.Must(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for _, test := range []struct{ args, words []string }{
		{[]string{"surplus"}, []string{"surplus"}},
		{[]string{"--nosuch"}, []string{"--nosuch"}},
		{[]string{"--url", "nonsense"}, []string{"nonsense", "http://127.0.0.1:8892"}},
		{[]string{"--tls-ca", "/nosuch.crt"}, []string{"TLS is for https"}},
		{[]string{"--url", "https://127.0.0.1:1", "--tls-ca", "/nosuch.crt"}, []string{"/nosuch.crt"}},
		{[]string{"--credential-file", "/nosuch"}, []string{"credential", "/nosuch"}},
		{[]string{"--credential-file", empty}, []string{empty}},
		{[]string{"--ttl", "10ms"}, []string{"--ttl", "1s"}},
		{[]string{"--timeout", "-1s"}, []string{"--timeout"}},
		{[]string{"--margin", "-1s"}, []string{"--margin"}},
		{[]string{"--release-timeout", "0s"}, []string{"release timeout"}},
		{[]string{"--signal-parent=NOSUCH"}, []string{"--signal-parent", "NOSUCH", "TERM"}},
		{[]string{"--kill-after", "-1s"}, []string{"--kill-after"}},
		{[]string{"--log-level", "loud"}, []string{"--log-level", "loud"}},
		{[]string{"--insecure=maybe"}, []string{"--insecure"}},
	} {
		refused(t, append([]string{"keychain"}, test.args...), test.words...)
	}
}

// TLS and the address of the server, also from the environment.
func TestKeychainTLS(t *testing.T) {
	t.Parallel()
	ca := fixtures.NewCA(t)
	server := harness.StartSecure(t, ca, "--tls-client-ca", ca.File)
	cert, key := ca.Issue(t, "locket")
	cmd := keychainCommand(t, "https://"+server.HTTPAddress())
	cmd.Args = append(cmd.Args, "--tls-cert", cert, "--tls-key", key)
	cmd.Env = append(cmd.Env, "LOCKET_TLS_CA="+ca.File, "LOCKET_URL=nonsense")
	attachKeychain(t, cmd).do("claim", "a", nil)
	wantFailed(t, startKeychain(t, "https://"+server.HTTPAddress()).call("claim", "a", object{"timeout": 10}), "certificate")
}

func TestKeychainCredential(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told <- r.Header.Get("Authorization")
		w.Header().Set("Locket-Api", "v1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message": "not for you"}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "credential")
	harness.Must(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	wantFailed(t, startKeychain(t, server.URL, "--credential-file", file).call("claim", "a", nil), "403")
	if credential := <-told; credential != "Bearer s3cret" {
		t.Errorf("the server got %q", credential)
	}
}

// A real keychain answers as in docs/keychain.md.
func TestKeychainDocument(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	p := startKeychain(t, httpURL(server))
	text, err := os.ReadFile("../../docs/keychain.md")
	harness.Must(t, err)
	_, text, _ = bytes.Cut(text, []byte("## Requests and answers"))
	conversation, _, _ := bytes.Cut(text, []byte("| command |"))
	asked, told := 0, 0
	for line := range strings.Lines(string(conversation)) {
		if request, ok := strings.CutPrefix(line, "    > "); ok {
			asked++
			p.write(request)
		}
		if answer, ok := strings.CutPrefix(line, "    < "); ok {
			told++
			want := readObject(t, answer)
			got := p.await(jsonOf(want["serial"]))
			for _, name := range []string{"id", "token"} {
				if (got[name] != nil) != (want[name] != nil) {
					t.Errorf("%v, the document says %v", got, want)
				}
				delete(got, name)
				delete(want, name)
			}
			if jsonOf(got) != jsonOf(want) {
				t.Errorf("%v, the document says %v", got, want)
			}
		}
	}
	if asked != told || asked < 6 {
		t.Errorf("%d requests, %d answers in the document", asked, told)
	}
	p.wantExit(0, "")
}

// readObject reads an object as the tests' client does.
func readObject(t *testing.T, text string) (o object) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	harness.Must(t, decoder.Decode(&o))
	return o
}
