package keychain

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer bounds the body of an answer. Locket's largest is that of a claim whose user data
// and value, 64 KiB each, are written with six characters for each byte.
const maxAnswer = 1 << 20

// wire sends requests to one server.
type wire struct {
	client *http.Client
	base   *url.URL // of the server
	claims string   // the address of POST
	token  string
	// hangUp closes connections that are not in use, after one has gone silent: others to the
	// same server may have too.
	hangUp func()
	// traced is set when the transport tells of its connections.
	traced bool
}

// newWire returns a wire to the server at an address.
func newWire(address string, s *settings) (*wire, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.Opaque != "":
		return nil, errors.New("not an address like http://127.0.0.1:8892")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("more than a scheme, a host and a path")
	case base.Scheme == "http" && (s.tls != nil || s.files != nil):
		return nil, errors.New("TLS is for https")
	case s.token != "" && base.Scheme == "http" && !s.insecure && !isLoopback(base.Hostname()):
		return nil, errors.New("a bearer token needs https to another machine, or WithInsecure")
	}
	w := &wire{base: base, claims: base.JoinPath("v1/claims/").String(), token: s.token, hangUp: func() {}}
	transport := s.transport
	if transport == nil {
		own, err := newTransport(s)
		if err != nil {
			return nil, err
		}
		transport, w.hangUp = own, own.CloseIdleConnections
	}
	_, w.traced = transport.(*http.Transport)
	w.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// newTransport returns a transport that speaks HTTP/1.1, so that a connection which is stuck
// holds up one request only; and that asks no proxy, because it might not hold a request for
// as long as it takes.
func newTransport(s *settings) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a bound on what is read bounds what it becomes
		Protocols:              new(http.Protocols),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
	}
	t.Protocols.SetHTTP1(true)
	if s.tls != nil {
		t.TLSClientConfig = s.tls.Clone()
	}
	if s.files != nil {
		dialer, err := newFileDialer(*s.files)
		if err != nil {
			return nil, err
		}
		t.DialTLSContext = dialer.dial
	}
	return t, nil
}

// isLoopback reports whether a host is this machine, without looking anything up.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// request is one that is to be sent.
type request struct {
	kind    action // "" for GET
	method  string
	url     string
	body    any
	key     string        // Idempotency-Key
	wait    time.Duration // Prefer: wait
	timeout time.Duration
	ttl     time.Duration // that a renewal asks for
	ends    string        // the final status that is asked for
}

// answer is what came of a request.
type answer struct {
	request
	sent, came time.Time
	// err is set when there is no answer, or one that cannot be read. What could be read is
	// set all the same.
	err      error
	unsent   bool // no connection came about
	code     int
	location string // an address that may be used, or ""
	applied  bool   // the server has waited
	after    time.Duration
	text     string
	// members are those of the body, if that is an object.
	members map[string]json.RawMessage
}

// do sends a request and returns its answer, within its time.
func (w *wire) do(ctx context.Context, r request) answer {
	a := answer{request: r, sent: time.Now()}
	timed, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var connected atomic.Bool
	a.err = w.exchange(httptrace.WithClientTrace(timed, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}), &a)
	a.unsent = w.traced && !connected.Load()
	a.came = time.Now()
	if a.err != nil {
		if errors.Is(timed.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
			w.hangUp()
		}
		a.err = fmt.Errorf("%s %s: %w", r.method, r.url, unwrapped(a.err))
	}
	return a
}

// unwrapped returns an error without the words of net/http, which say the request again.
func unwrapped(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func (w *wire) exchange(ctx context.Context, a *answer) error {
	req, err := w.newRequest(ctx, a.request)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.code, a.location = resp.StatusCode, w.locate(resp)
	a.applied = strings.Contains(strings.ToLower(resp.Header.Get("Preference-Applied")), "wait")
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		a.after = time.Duration(seconds) * time.Second
	}
	return a.read(resp.Body)
}

func (w *wire) newRequest(ctx context.Context, r request) (*http.Request, error) {
	var content io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, content)
	if err != nil {
		return nil, err
	}
	// Without it net/http repeats by itself what has an Idempotency-Key. The keeper must know
	// of every POST, for the servers that do not know the key.
	req.GetBody = nil
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "locket-keychain")
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if r.wait > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(int(r.wait/time.Second)))
	}
	if w.token != "" && req.URL.Scheme == w.base.Scheme && req.URL.Host == w.base.Host {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	return req, nil
}

// locate returns the address that an answer leads to, or "" when there is none that may be
// used. It may be on another host, but not in plain text if the server's own is not.
func (w *wire) locate(resp *http.Response) string {
	location, err := resp.Location()
	if err != nil || location.Host == "" {
		return ""
	}
	if location.Scheme != "https" && (location.Scheme != "http" || w.base.Scheme == "https") {
		return ""
	}
	return location.String()
}

// read reads the body: nothing, or an object. Anything else, where the request has succeeded,
// comes from somebody who is not the server (a proxy, a portal that wants a login).
func (a *answer) read(body io.Reader) error {
	if a.code == http.StatusNoContent {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	a.text = beginning(content)
	if len(content) > maxAnswer {
		err = fmt.Errorf("the answer, %d, has more than %d bytes", a.code, maxAnswer)
	}
	if len(bytes.TrimSpace(content)) > 0 && err == nil {
		err = json.Unmarshal(content, &a.members)
	}
	if err != nil && a.code >= 300 {
		return nil // the code says enough
	}
	return err
}

// beginning returns so much of a body as a message can bear.
func beginning(content []byte) string {
	text := strings.TrimSpace(string(content[:min(len(content), 300)]))
	return strings.ToValidUTF8(text, "?")
}

// member returns a member of the body that is a string, "" if there is none.
func (a *answer) member(name string) (text string) {
	if json.Unmarshal(a.members[name], &text) != nil {
		return ""
	}
	return text
}

// fencingToken returns the token that the answer tells, 0 if none.
func (a *answer) fencingToken() (token uint64) {
	if json.Unmarshal(a.members["token"], &token) != nil {
		return 0
	}
	return token
}

// event sorts an answer.
func (a *answer) event() event {
	switch {
	case a.err != nil:
		return eventFailed
	case a.code == http.StatusNotFound:
		return eventNotFound
	case a.code == http.StatusConflict:
		return eventConflict
	case a.code == http.StatusRequestTimeout, a.code == http.StatusTooEarly, a.code == http.StatusTooManyRequests:
		return eventFailed // not now
	case a.code >= 400 && a.code < 500:
		return eventRefused
	case a.code >= 200 && a.code < 300:
		return a.success()
	default: // redirects too: nothing of the protocol is elsewhere
		return eventFailed
	}
}

// success sorts an answer of 2xx.
func (a *answer) success() event {
	status := a.member("status")
	switch {
	case a.kind == sendRegister && (a.code == http.StatusCreated || a.code == http.StatusAccepted):
		if a.location == "" {
			return eventRefused // repeating it would make ever more claims
		}
		if a.code == http.StatusCreated {
			return eventCreated
		}
		return eventAccepted
	case a.kind == sendRegister && a.code == http.StatusOK && hasEnded(status):
		return eventOK
	case (a.kind == sendActivate || a.kind == sendRenew) && a.code == http.StatusOK && (status == "" || status == "active"):
		return eventOK
	case a.ends != "" && a.code == http.StatusNoContent:
		return eventNoContent
	}
	return eventFailed
}

// failure returns an answer as an error, nil if it is what was asked for.
func (a *answer) failure() error {
	if a.err != nil {
		return a.err
	}
	e := &AnswerError{Request: a.method + " " + a.url, Code: a.code, Body: a.text}
	switch a.event() {
	case eventCreated, eventAccepted, eventNoContent:
		return nil
	case eventOK:
		if a.kind != sendRegister {
			return nil
		}
		e.problem = "the claim has ended"
	case eventRefused:
		if a.code < 300 {
			e.problem = "without a Location that can be used"
		}
	case eventFailed:
		if a.code < 400 {
			e.problem = "nothing that the protocol has here"
		}
	}
	return e
}

// hasEnded reports whether a status is a final one (the REST requirements).
func hasEnded(status string) bool {
	switch status {
	case "aborted", "expired", "released", "revoked", "withdrawn":
		return true
	}
	return false
}
