package keychain

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/bearer"
)

// markHeader is on every answer of Locket, errors included (docs/rest.md). What a proxy, a
// load balancer or a portal answers in the server's place does not have it.
const markHeader = "Locket-Api"

// wire sends requests to the servers of one service.
type wire struct {
	client     *http.Client
	servers    *servers
	credential bearer.Source // nil if there is none
	log        *slog.Logger
	// hangUp closes unused connections after one has gone silent, because others to the same server may be silent
	// too.
	hangUp func()
	// traced is set when the transport reports its connections.
	traced bool
	// isLocket is set once an answer had Locket's mark. From then on answers without it are foreign: a proxy has sent
	// them.
	isLocket atomic.Bool
}

// newWire returns a wire to the servers at addresses.
func newWire(addresses []string, s *settings) (*wire, error) {
	list, err := newServers(addresses, s)
	if err != nil {
		return nil, err
	}
	w := &wire{servers: list, log: s.log, hangUp: func() {}}
	if s.credential != nil {
		if w.credential, err = s.credential(); err != nil {
			return nil, err
		}
	}
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

// newTransport returns a transport that speaks HTTP/1.1, so that a stuck connection holds up one request only, and that
// uses no proxy, because a proxy might not hold a request for long enough.
func newTransport(s *settings) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		IdleConnTimeout:        time.Minute,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a bound on the input bounds the result
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

// request is a request to send.
type request struct {
	kind    action // "" for GET
	method  string
	url     string
	body    any
	key     string        // Idempotency-Key
	wait    time.Duration // Prefer: wait
	timeout time.Duration
	ttl     time.Duration // requested by a renewal
	ends    string        // the requested final status
	// explain is set when it matters why the claim was aborted, if it was.
	explain bool
}

// do sends a request and returns its answer, within its timeout. If the server fails, the next request goes to
// another one.
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
		a.err = fmt.Errorf("%s %s: %w", r.method, a.target, unwrapped(a.err))
	}
	if a.refusesWaitTTL() {
		w.log.Info("the server knows no wait TTLs; claims are made without them", "server", w.servers.roots[a.server])
		w.servers.refuseWaitTTL(a.server)
		return w.do(ctx, r)
	}
	if ctx.Err() == nil && a.blamesServer() {
		w.fail(a.server)
	}
	return a
}

// fail switches to the next server.
func (w *wire) fail(server int) {
	if w.servers.fail(server) {
		w.log.Warn("a server fails; the next one is asked", "server", w.servers.roots[server])
	}
}

// unwrapped returns an error without net/http's prefix, which repeats the request.
func unwrapped(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func (w *wire) exchange(ctx context.Context, a *answer) (err error) {
	a.target, a.server, err = w.servers.route(a.url)
	if err != nil {
		return err
	}
	if body, is := a.body.(registration); is && w.servers.refusesWaitTTL(a.server) {
		body.WaitTTL = 0
		a.body = body
	}
	req, err := w.newRequest(ctx, a.request, a.target)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	a.code, a.marked = resp.StatusCode, resp.Header.Get(markHeader) != ""
	if a.marked {
		w.isLocket.Store(true)
	} else if w.isLocket.Load() {
		a.foreign = true
	}
	if !a.foreign {
		a.location = w.locate(resp)
		a.applied = strings.Contains(strings.ToLower(resp.Header.Get("Preference-Applied")), "wait")
	}
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		a.after = time.Duration(seconds) * time.Second
	}
	return a.read(resp)
}

func (w *wire) newRequest(ctx context.Context, r request, target string) (*http.Request, error) {
	var content io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, content)
	if err != nil {
		return nil, err
	}
	// Without it net/http repeats requests with an Idempotency-Key by itself. The worker must know of every POST,
	// because some servers do not know the key.
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
	if w.credential != nil && w.servers.isOurs(req.URL) {
		credential, err := w.credential.Credential(ctx)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	return req, nil
}

// locate returns the address in an answer, or "" if there is no usable one. It may be on another host, but not in
// plain text unless the servers' addresses are plain text too.
func (w *wire) locate(resp *http.Response) string {
	location, err := resp.Location()
	if err != nil || location.Host == "" {
		return ""
	}
	if location.Scheme != "https" && (location.Scheme != "http" || w.servers.isSecure()) {
		return ""
	}
	return w.servers.canonical(location)
}
