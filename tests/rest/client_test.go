package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// restServer is a running server as a client of its REST interface sees it.
type restServer struct {
	*fixtures.Locket
	url    string // scheme and host
	client *http.Client
}

// object is a JSON object that is sent.
type object map[string]any

// reply is the result of a request.
type reply struct {
	request string
	err     error // of a request without an answer
	code    int
	header  http.Header
	body    []byte
	took    time.Duration
}

// restClaim is a claim as a client reads it; members that may be null are pointers.
type restClaim struct {
	URL, ID, Resource, Mode, Status string
	Owner, Type, Value, Reason      *string
	StatusHistory                   []restChange `json:"status_history"`
	Created                         time.Time
	TTL                             *float64
	ActiveDuration                  *float64        `json:"active_duration"`
	WaitingDuration                 float64         `json:"waiting_duration"`
	UserData                        json.RawMessage `json:"user_data"`
	Token                           *uint64
	Position                        *int
	Version                         uint64
	Since                           time.Time // in queues
}

type restChange struct {
	Status    string
	Timestamp time.Time
}

// restQueue is the queue of a resource as a client reads it.
type restQueue struct {
	URL, Resource    string
	Version          uint64
	Token            *uint64
	Holders, Waiters []restClaim
	Waiting          int
}

// longestCall is how long a call may hang before it fails. It is longer than all that the tests wait for, one after the other.
const longestCall = 5 * harness.HangTimeout

var errRedirect = errors.New("a redirect, which no address of this service may be")

// startREST starts a server on a database.
func startREST(t *testing.T, database string, args ...string) *restServer {
	t.Helper()
	server := fixtures.StartLocket(t, database, args...)
	return newREST(t, server, "http", &http.Transport{})
}

func newREST(t *testing.T, server *fixtures.Locket, scheme string, transport *http.Transport) *restServer {
	t.Helper()
	transport.MaxIdleConnsPerHost = 100
	t.Cleanup(transport.CloseIdleConnections)
	return &restServer{server, scheme + "://" + server.HTTPAddress(), &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
		Timeout:       longestCall,
	}}
}

// try sends a request. A body that is a string is sent unchanged, nil is none, and
// others are sent as JSON. The header comes as names and values by turns.
func (s *restServer) try(ctx context.Context, method, path string, body any, header ...string) reply {
	a := reply{request: method + " " + path}
	var content io.Reader = http.NoBody
	switch body := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			a.err = err
			return a
		}
		content = bytes.NewReader(text)
	}
	url := path
	if strings.HasPrefix(path, "/") {
		url = s.url + path
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		a.err = err
		return a
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(header, 2) {
		request.Header.Set(pair[0], pair[1])
		if pair[0] == "Host" {
			request.Host = pair[1]
		}
	}
	a.carryOut(s.client, request)
	return a
}

func (a *reply) carryOut(client *http.Client, request *http.Request) {
	start := time.Now()
	resp, err := client.Do(request)
	if err != nil {
		a.err = err
		return
	}
	defer resp.Body.Close()
	a.code, a.header = resp.StatusCode, resp.Header
	a.body, a.err = io.ReadAll(resp.Body)
	a.took = time.Since(start) // real time: no answer comes early, or takes for ever
}

// do sends a request that must be answered. The servers of a cluster that is busy may answer that there is no quorum: then nothing has
// happened, and the request is sent again.
func (s *restServer) do(t *testing.T, method, path string, body any, header ...string) (a reply) {
	t.Helper()
	harness.Eventually(t, func() error {
		if a = s.try(t.Context(), method, path, body, header...); a.code == http.StatusServiceUnavailable && strings.Contains(string(a.body), noQuorum) {
			return fmt.Errorf("%s: %s", a.request, a.body)
		}
		return nil
	})
	if a.err != nil {
		t.Fatalf("%s: %v", a.request, a.err)
	}
	return a
}

const noQuorum = "no server of the cluster can commit"

// send sends a request in the background.
func (s *restServer) send(ctx context.Context, method, path string, body any, header ...string) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- s.try(ctx, method, path, body, header...) }()
	return done
}

func (s *restServer) post(t *testing.T, body any, header ...string) reply {
	t.Helper()
	return s.do(t, "POST", "/v1/claims/", body, header...)
}

func (s *restServer) patch(t *testing.T, id string, body any, header ...string) reply {
	t.Helper()
	return s.do(t, "PATCH", claimPath(id), body, header...)
}

func (s *restServer) put(t *testing.T, id string, body any, header ...string) reply {
	t.Helper()
	return s.do(t, "PUT", claimPath(id), body, header...)
}

// end moves a claim to a final status.
func (s *restServer) end(t *testing.T, id, status string) {
	t.Helper()
	s.patch(t, id, object{"status": status}).is(t, http.StatusNoContent)
}

// get returns an existing claim.
func (s *restServer) get(t *testing.T, id string) restClaim {
	t.Helper()
	return s.do(t, "GET", claimPath(id), nil).is(t, http.StatusOK).claim(t)
}

// list returns the claims that a query finds.
func (s *restServer) list(t *testing.T, query string) []restClaim {
	t.Helper()
	return s.do(t, "GET", "/v1/claims/?"+query, nil).is(t, http.StatusOK).claims(t)
}

func claimPath(id string) string { return "/v1/claims/" + id + "/" }

// hold claims a resource that is free.
func (s *restServer) hold(t *testing.T, resource string) restClaim {
	t.Helper()
	return s.holdFor(t, resource, 600)
}

func (s *restServer) holdFor(t *testing.T, resource string, ttl float64) restClaim {
	t.Helper()
	return s.post(t, object{"resource": resource, "ttl": ttl}).is(t, http.StatusCreated).claim(t)
}

// queue claims a resource that is held.
func (s *restServer) queue(t *testing.T, resource string) restClaim {
	t.Helper()
	return s.post(t, object{"resource": resource, "ttl": 600}).is(t, http.StatusAccepted).claim(t)
}

// becomes waits until a claim has a status.
func (s *restServer) becomes(t *testing.T, id, status string) (c restClaim) {
	t.Helper()
	harness.Eventually(t, func() error {
		if c = s.get(t, id); c.Status != status {
			return fmt.Errorf("the claim is %s, not %s", c.Status, status)
		}
		return nil
	})
	return c
}

// stands fails the test unless a claim has a status now.
func (s *restServer) stands(t *testing.T, id, status string) restClaim {
	t.Helper()
	c := s.get(t, id)
	if c.Status != status {
		t.Errorf("the claim is %s, not %s", c.Status, status)
	}
	return c
}

// is fails the test unless the answer has this code, and is JSON if it has a body.
func (a reply) is(t *testing.T, code int) reply {
	t.Helper()
	switch {
	case a.err != nil:
		t.Fatalf("%s: %v", a.request, a.err)
	case a.code != code:
		t.Fatalf("%s: %d %s; want %d", a.request, a.code, cut(a.body), code)
	case code == http.StatusNoContent && len(a.body) > 0:
		t.Errorf("%s: 204 with a body: %s", a.request, cut(a.body))
	case len(a.body) > 0 && a.header.Get("Content-Type") != "application/json":
		t.Errorf("%s: Content-Type %q", a.request, a.header.Get("Content-Type"))
	}
	return a
}

// refuses fails the test unless the answer has this code, and a body whose keys are these.
func (a reply) refuses(t *testing.T, code int, keys ...string) map[string]string {
	t.Helper()
	var problems map[string]string
	a.is(t, code).decode(t, &problems)
	got := make([]string, 0, len(problems))
	for key, problem := range problems {
		got = append(got, key)
		if problem == "" {
			t.Errorf("%s: %s says nothing of %s", a.request, a.body, key)
		}
	}
	slices.Sort(got)
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("%s: %d %s; want the keys %q", a.request, a.code, cut(a.body), keys)
	}
	return problems
}

func (a reply) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%s: %d %s: %v", a.request, a.code, cut(a.body), err)
	}
}

func (a reply) claim(t *testing.T) (c restClaim) {
	t.Helper()
	a.decode(t, &c)
	return c
}

func (a reply) claims(t *testing.T) (list []restClaim) {
	t.Helper()
	a.decode(t, &list)
	if list == nil {
		t.Fatalf("%s: %s is no array", a.request, cut(a.body))
	}
	return list
}

// members returns the members of an answer as they are written.
func (a reply) members(t *testing.T) (members map[string]json.RawMessage) {
	t.Helper()
	a.decode(t, &members)
	return members
}

// cut returns the beginning of a body, for messages.
func cut(body []byte) string {
	if len(body) > 500 {
		return string(body[:500]) + "…"
	}
	return string(body)
}

// statuses returns the statuses of a claim's history.
func (c *restClaim) statuses() []string {
	var list []string
	for _, change := range c.StatusHistory {
		list = append(list, change.Status)
	}
	return list
}

// since returns when a claim got a status.
func (c *restClaim) since(t *testing.T, status string) time.Time {
	t.Helper()
	i := slices.IndexFunc(c.StatusHistory, func(change restChange) bool { return change.Status == status })
	if i < 0 {
		t.Fatalf("%s was never %s: %v", c.ID, status, c.StatusHistory)
	}
	return c.StatusHistory[i].Timestamp
}

// idsOf returns the ids of claims, in their order.
func idsOf(claims []restClaim) []string {
	ids := []string{}
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// about fails the test unless a duration in seconds is as wanted, or less by the time that a
// request may take.
func about(t *testing.T, what string, seconds *float64, want float64) {
	t.Helper()
	const while = 45
	if seconds == nil || *seconds > want+0.000_001 || *seconds < want-while {
		t.Errorf("%s is %v; want %v", what, show(seconds), want)
	}
}

// show returns the value that a pointer points to, as text.
func show[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// ptrEqual reports whether a pointer points to a value.
func ptrEqual[T comparable](p *T, value T) bool { return p != nil && *p == value }

// sentence is one of a document, with the test that shows that it is true.
type sentence struct {
	text string
	test func(t *testing.T, s *restServer)
}

// section is a number of sentences under one heading.
type section struct {
	name      string
	sentences []sentence
}

// runSections runs the tests of all sections on one server.
func runSections(t *testing.T, database string, sections []section) {
	s := startREST(t, database)
	for _, section := range sections {
		t.Run(section.name, func(t *testing.T) {
			for _, sentence := range section.sentences {
				t.Run(sentence.text, func(t *testing.T) {
					t.Parallel()
					sentence.test(t, s)
				})
			}
		})
	}
}
