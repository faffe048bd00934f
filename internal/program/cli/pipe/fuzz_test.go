package pipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/tests/harness"
)

// grantingServer answers a keychain without a network: whatever is claimed is granted.
type grantingServer struct{ claims atomic.Int64 }

func (s *grantingServer) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &http.Response{Request: r, StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	switch r.Method {
	case http.MethodPost:
		a.StatusCode = http.StatusCreated
		a.Header.Set("Location", fmt.Sprintf("/v1/claims/%d/", s.claims.Add(1)))
	case http.MethodPatch:
		if body, _ := io.ReadAll(r.Body); bytes.Contains(body, []byte("status")) {
			a.StatusCode = http.StatusNoContent
			break
		}
		fallthrough
	default:
		a.Body = io.NopCloser(strings.NewReader(`{"status": "active"}`))
	}
	return a, nil
}

// newTestHandler returns a handler whose client has sent a text, with a server that grants all.
func newTestHandler(t *testing.T, out io.Writer) *handler {
	t.Helper()
	kc, err := keychain.New("http://localhost", keychain.WithTransport(&grantingServer{}))
	harness.Must(t, err)
	h := &handler{keychain: kc, log: slog.New(slog.DiscardHandler), notices: true, claims: make(map[string]*entry)}
	h.shutdown = func(r *request) { h.answer(r, nil, nil) }
	h.out = newOutbox(out, func(err error) { t.Error(err) })
	return h
}

// split returns the messages of a stream.
func split(r io.Reader) (messages []string) {
	in := newInput(r)
	for {
		message, err := in.next()
		switch {
		case err == nil:
			messages = append(messages, string(message))
		case errors.Is(err, errNotJSON), errors.Is(err, errTooLong):
			messages = append(messages, err.Error())
		default:
			return messages
		}
	}
}

// oracle returns the values of a stream as encoding/json reads them, if it can.
func oracle(stream []byte) (messages []string, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(stream))
	for {
		var message json.RawMessage
		err := decoder.Decode(&message)
		if err != nil {
			return messages, errors.Is(err, io.EOF)
		}
		if message[0] != '{' && message[0] != '[' || len(message) > MaxMessage || bytes.Count(message, []byte("["))+bytes.Count(message, []byte("{")) >= MaxDepth {
			return nil, false
		}
		messages = append(messages, string(message))
	}
}

// Whatever comes, each message gets one answer of the protocol, and nothing is left at the end.
func FuzzKeychainInput(f *testing.F) {
	for _, seed := range []string{
		`{"command":"ping","serial":1}{"command":"claim","resource_name":"a","serial":"2","args":{"user_data":null,"ttl":60}}`,
		`{"command":"claim","resource_name":"a","serial":1}{"command":"claim","resource_name":"a","serial":2}{"command":"release","resource_name":"a","serial":3}{"command":"validate","resource_name":"a","serial":4}`,
		`{"command":"shutdown","resource_name":"","serial":1}{"command":"ping","serial":2}`,
		`{"serial":1,"command":"claim","resource_name":7,"args":{"ttl":"1e1","timeout":1.5,"mode":"shared","owner":"\ud800"}}`,
		"{\"a\": [1, {\"b\": \"\\\"]\"}, true], \"serial\": -1.5e3}\n garbage {{\n[] 12 {\"serial\":\"\xff\"}",
		`{"a":nope}{"a" 1}`, "]", "{\"a\n", `{"a":1,}`, `[1,]`, `{"a"}`, `{,}`, `{"serial":1,"serial":{}}`, "\x00", `{"a":"\x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		messages := split(bytes.NewReader(stream))
		if apart := split(iotest.OneByteReader(bytes.NewReader(stream))); strings.Join(apart, "\n") != strings.Join(messages, "\n") {
			t.Errorf("read at once %q, apart %q", messages, apart)
		}
		if want, ok := oracle(stream); ok && strings.Join(want, "\n") != strings.Join(messages, "\n") {
			t.Errorf("read %q, want %q", messages, want)
		}

		var out bytes.Buffer
		h := newTestHandler(t, &out)
		if err := h.serve(newInput(bytes.NewReader(stream))); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		harness.Must(t, h.close(nil, h.keychain.Close))
		h.out.close(time.Minute)
		answers := strings.SplitAfter(out.String(), "\n")
		for _, line := range answers[:len(answers)-1] {
			wantProtocol(t, line)
		}
		if len(answers)-1 != len(messages) {
			t.Errorf("%d answers to %q: %q", len(answers)-1, messages, answers)
		}
	})
}

// wantProtocol checks a line that a keychain says.
func wantProtocol(t *testing.T, line string) {
	t.Helper()
	var m struct {
		Serial  json.RawMessage `json:"serial"`
		Result  string          `json:"result"`
		Error   *string         `json:"error_message"`
		Notice  string          `json:"notice"`
		Command json.RawMessage `json:"command"`
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || strings.Count(line, "\n") != 1 {
		t.Fatalf("%q: %v", line, err)
	}
	switch {
	case isSerial(m.Serial) && m.Notice == "" && m.Result == "succeeded" && m.Error == nil && m.Command != nil:
	case isSerial(m.Serial) && m.Notice == "" && m.Result == "failed" && m.Error != nil:
	case m.Serial == nil && m.Notice == "error" && m.Result == "" && m.Error != nil:
	default:
		t.Errorf("%s", line)
	}
}

// A client that sends and does not read is waited for, and holds up nothing else.
func TestKeychainOutboxWaits(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	out := newOutbox(write, func(error) {})
	line := bytes.Repeat([]byte("a"), 1<<20)
	for range maxUnread/len(line) + 2 {
		out.put(line)
	}
	waits := harness.Later(func() error { out.awaitReader(); return nil })
	select {
	case <-waits:
		t.Error("it did not wait")
	case <-time.After(50 * time.Millisecond): // real time: it waits, at any speed
	}
	if n, err := out.Write(line); n != len(line) || err != nil { // a log does not wait
		t.Errorf("%d, %v", n, err)
	}
	go func() { _, _ = io.Copy(io.Discard, read) }()
	<-waits
	out.close(time.Minute)
	select {
	case <-out.done:
	default:
		t.Error("it is not done")
	}
}
