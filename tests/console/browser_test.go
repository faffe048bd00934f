//go:build browser

// Package console_test checks the console in a real browser: the visible text, keyboard and mouse.
package console_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

func TestMain(m *testing.M) { harness.Run(m) }

// browser is a running Chromium, spoken to over a pipe by the Chrome DevTools Protocol.
type browser struct {
	t  *testing.T
	in io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan reply
	pages   map[string]*tab // by session
}

type reply struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	SessionID string          `json:"sessionId"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser starts one with a profile of its own, in a home of its own.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	return startBrowserIn(t, t.TempDir())
}

// startBrowserIn starts one in a home, with the profile in its folder profile.
func startBrowserIn(t *testing.T, home string) *browser {
	t.Helper()
	theirIn, in, err := os.Pipe()
	harness.Must(t, err)
	out, theirOut, err := os.Pipe()
	harness.Must(t, err)
	command := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-dev-shm-usage", "--user-data-dir="+filepath.Join(home, "profile"), "--remote-debugging-pipe", "about:blank")
	command.Env = append(os.Environ(), "HOME="+home)
	command.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4 there
	harness.Must(t, command.Start())
	harness.Must(t, theirIn.Close())
	harness.Must(t, theirOut.Close())
	b := &browser{t: t, in: in, waiting: make(map[int]chan reply), pages: make(map[string]*tab)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.read(out)
	}()
	t.Cleanup(func() {
		_ = b.send("", 0, "Browser.close", nil)
		<-ended
		_ = command.Wait()
		_ = in.Close()
		_ = out.Close()
	})
	return b
}

func (b *browser) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var message reply
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &message); err != nil {
			continue
		}
		b.mu.Lock()
		answered, page := b.waiting[message.ID], b.pages[message.SessionID]
		delete(b.waiting, message.ID)
		b.mu.Unlock()
		switch {
		case message.ID != 0 && answered != nil:
			answered <- message
		case page != nil:
			page.heard(message)
		}
	}
}

func (b *browser) send(session string, id int, method string, params any) error {
	if params == nil {
		params = struct{}{}
	}
	message := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		message["sessionId"] = session
	}
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err = b.in.Write(append(text, 0))
	return err
}

// call carries out a command, and puts its result where result points.
func (b *browser) call(session, method string, params, result any) {
	b.t.Helper()
	answered := make(chan reply, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answered
	b.mu.Unlock()
	harness.Must(b.t, b.send(session, id, method, params))
	answer := harness.Await(b.t, method, answered)
	if answer.Error != nil {
		b.t.Fatalf("%s: %s", method, answer.Error.Message)
	}
	if result != nil {
		harness.Must(b.t, json.Unmarshal(answer.Result, result))
	}
}

type object map[string]any

// tab is a tab of the browser.
type tab struct {
	*browser
	session string

	mu   sync.Mutex
	logs []string
	// expected are parts of log lines that are no errors of the page, such as failed requests.
	expected []string
}

// busy is in the log when a server on a busy machine could not answer in time. The page asks again.
const busy = "503 (Service Unavailable)"

// open opens a tab. When the test ends, nothing must be in its log.
func (b *browser) open(address string, expected ...string) *tab {
	b.t.Helper()
	var target struct{ TargetID, SessionID string }
	b.call("", "Target.createTarget", object{"url": "about:blank"}, &target)
	b.call("", "Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &target)
	p := &tab{browser: b, session: target.SessionID, expected: append(expected, busy)}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Runtime", "Log", "Page"} {
		p.do(domain+".enable", nil)
	}
	p.size(1280, 900)
	p.visit(address)
	b.t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.logs {
			b.t.Errorf("the browser's log: %s", line)
		}
	})
	return p
}

func (p *tab) do(method string, params any) {
	p.t.Helper()
	p.call(p.session, method, params, nil)
}

// heard keeps the browser's complaints.
func (p *tab) heard(message reply) {
	var complaint struct {
		Type             string
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	_ = json.Unmarshal(message.Params, &complaint)
	line := ""
	switch {
	case message.Method == "Runtime.exceptionThrown":
		line = complaint.ExceptionDetails.Text + " " + complaint.ExceptionDetails.Exception.Description
	case message.Method == "Log.entryAdded" && (complaint.Entry.Level == "error" || complaint.Entry.Level == "warning"):
		line = complaint.Entry.Text + " " + complaint.Entry.URL
	case message.Method == "Runtime.consoleAPICalled" && (complaint.Type == "error" || complaint.Type == "warning"):
		line = string(message.Params)
	}
	for _, expected := range p.expected {
		if strings.Contains(line, expected) {
			return
		}
	}
	if line != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.logs = append(p.logs, line)
	}
}

func (p *tab) visit(address string) {
	p.t.Helper()
	p.do("Page.navigate", object{"url": address})
}

func (p *tab) size(width, height int) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// theme is light or dark.
func (p *tab) theme(name string) {
	p.t.Helper()
	p.do("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": name}}})
}

// eval evaluates an expression in the page; it waits for a promise.
func (p *tab) eval(expression string) (any, error) {
	p.t.Helper()
	var result struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.call(p.session, "Runtime.evaluate", object{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &result)
	if thrown := result.ExceptionDetails; thrown != nil {
		return nil, fmt.Errorf("%s: %s %s", expression, thrown.Text, thrown.Exception.Description)
	}
	return result.Result.Value, nil
}

// is reports whether an expression is true in the page.
func (p *tab) is(expression string) bool {
	p.t.Helper()
	value, err := p.eval(expression)
	return err == nil && value == true
}

// until waits until an expression is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	harness.Eventually(p.t, func() error {
		value, err := p.eval(expression)
		if err == nil && value != true {
			shown, _ := p.eval("document.title + ': ' + location.hash + ' ' + document.body.innerText.slice(0, 2000)")
			err = fmt.Errorf("%s is %v in %v", expression, value, shown)
		}
		return err
	})
}

// shows waits until the page has a text, whatever the case and the space.
func (p *tab) shows(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.body.innerText.replace(/\\s+/g, ' ').includes(%s)", quoted(text)))
}

func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

// found is an expression for the first element that a selector finds and that has a text.
func found(selector, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].find((e) => e.innerText.includes(%s))", quoted(selector), quoted(text))
}

// click clicks with the mouse on the first element that a selector finds and that has a text.
func (p *tab) click(selector, text string) {
	p.t.Helper()
	element := found(selector, text)
	p.until(element + " !== undefined")
	var at [2]float64
	place, err := p.eval(fmt.Sprintf(`(() => { const e = %s; e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return JSON.stringify([r.x + r.width / 2, r.y + r.height / 2]) })()`, element))
	harness.Must(p.t, err)
	harness.Must(p.t, json.Unmarshal([]byte(place.(string)), &at))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.do("Input.dispatchMouseEvent", object{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1})
	}
}

// keys are the codes of the keys that tests press.
var keys = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27}

func (p *tab) press(key string) {
	p.t.Helper()
	event := object{"key": key, "code": key, "windowsVirtualKeyCode": keys[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	event["type"] = "keyDown"
	p.do("Input.dispatchKeyEvent", event)
	event["type"] = "keyUp"
	p.do("Input.dispatchKeyEvent", event)
}

func (p *tab) write(text string) {
	p.t.Helper()
	p.do("Input.insertText", object{"text": text})
}

// tabTo presses Tab until the focused element matches a selector and has a text.
func (p *tab) tabTo(selector, text string) {
	p.t.Helper()
	for range 80 {
		p.press("Tab")
		if p.is(fmt.Sprintf("document.activeElement.matches(%s) && (document.activeElement.innerText || document.activeElement.ariaLabel || '').includes(%s)", quoted(selector), quoted(text))) {
			return
		}
	}
	p.t.Fatalf("Tab does not lead to %s with %q", selector, text)
}

// shot makes a picture for docs/console.md, if LOCKET_TEST_SCREENSHOTS is set.
func (p *tab) shot(name string) {
	p.t.Helper()
	if os.Getenv("LOCKET_TEST_SCREENSHOTS") == "" {
		return
	}
	var picture struct{ Data string }
	p.call(p.session, "Page.captureScreenshot", object{"format": "png"}, &picture)
	content, err := base64.StdEncoding.DecodeString(picture.Data)
	harness.Must(p.t, err)
	folder := filepath.Join("..", "..", "docs", "console")
	harness.Must(p.t, os.MkdirAll(folder, 0o755))
	harness.Must(p.t, os.WriteFile(filepath.Join(folder, name+".png"), content, 0o644)) //nolint:gosec // it is published
}

// console returns the address of a page of a server's console.
func console(server *fixtures.Locket, page string) string {
	return "http://" + server.HTTPAddress() + "/console/#/" + page
}
