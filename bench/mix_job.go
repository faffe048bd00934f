package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// The mix models the clients of a lock service. A server is loaded by how often each request comes and how many claims
// wait meanwhile; jobs are short so that a run can be.
const (
	// Jobs come in groups of three, like replicas of a service that start the same task: the first claim is active at
	// once, two wait. The groups come at random times, for random resources, so that some groups meet.
	replicas = 3
	// activationsPerGroup is how many claims of a group go from waiting to active: the REST requirements expect about
	// 100 of those a second.
	activationsPerGroup = replicas - 1
	// resourcesPerRate is how many resources there are for each group per second, resourcesUnderWay for each concurrent
	// group: so many that each is in use for a fifth of the time, and that slow answers change the mix little.
	resourcesPerRate, resourcesUnderWay = 2, 5

	// A job takes about 100 ms, and its lease is far longer, so that none expires.
	shortestJob, longestJob = 50 * time.Millisecond, 150 * time.Millisecond
	leaseSeconds            = 60
	// Holders renew once or twice.
	renewals = 2

	// Most waiting clients poll, at growing intervals; every fourth lets the server delay the answer (Prefer: wait).
	firstPoll, lastPoll = 50 * time.Millisecond, 200 * time.Millisecond
	waitShare           = 0.25
	// Some clients withdraw while they wait, or are stopped while they work.
	withdrawn, revoked, aborted = 0.02, 0.01, 0.01
	// Some read their claim before they do what must not be done twice.
	careful = 0.25
	// Monitoring lists claims once in so many groups.
	groupsPerList = 20
)

// monitored are the requests of monitoring; one is chosen each time. R is some resource.
var monitored = []string{
	"status=waiting&limit=100",
	"status=waiting&minimum_waiting_duration=0.1",
	"status=active&minimum_active_duration=0.1&maximum_ttl=30",
	"resource=R&status=active",
	"resource=R",
}

func chance(p float64) bool { return rand.Float64() < p }

// job is a client's claim from start to end.
type job struct {
	*traffic
	book  *book
	claim claimView
	due   time.Time // when the next request is
	// waits lets the server delay the answer.
	waits bool
}

// group runs three jobs that are due at the same time; it returns when all have ended.
func (t *traffic) group(due time.Time) {
	book := t.books[rand.IntN(len(t.books))]
	var group sync.WaitGroup
	for range replicas {
		group.Go(func() { t.report(t.job(due, book)) })
	}
	if chance(1. / groupsPerList) {
		group.Go(func() { t.report(t.monitor(due)) })
	}
	group.Wait()
}

func (t *traffic) job(due time.Time, book *book) error {
	j := &job{traffic: t, book: book, due: due, waits: chance(waitShare)}
	if err := j.create(); err != nil {
		return err
	}
	for poll := firstPoll; j.claim.Status == "waiting"; poll = min(2*poll, lastPoll) {
		if chance(withdrawn) {
			j.book.withdraw()
			return j.end("withdrawn")
		}
		if !j.waits {
			j.pause(poll/2 + rand.N(poll))
		}
		if err := j.activate(); err != nil {
			return err
		}
	}
	return j.work()
}

// ask sends a request that is due. The next one is due after the answer, unless there is a pause.
func (j *job) ask(r request, expected outcomes) (answer, error) {
	a, err := j.traffic.ask(j.due, r, expected)
	j.due = time.Now()
	return a, err
}

// pause delays the next request.
func (j *job) pause(d time.Duration) {
	j.due = time.Now().Add(d)
	time.Sleep(d)
	if !j.open {
		j.due = time.Now()
	}
}

// create makes a claim whose owner has no other one: two jobs of one owner could wait for each other.
func (j *job) create() error {
	body := fmt.Sprintf(`{"resource": %q, "ttl": %d, "owner": "worker-%d", "user_data": {"host": "10.0.0.17", "build": %d}}`,
		j.book.resource, leaseSeconds, j.jobs.Add(1), rand.IntN(100_000))
	a, err := j.ask(request{method: http.MethodPost, path: "/v1/claims/", body: body},
		outcomes{http.StatusCreated: created, http.StatusAccepted: queued})
	if err != nil {
		return err
	}
	return j.read(a)
}

// activate asks the server to activate the claim.
func (j *job) activate() error {
	due, r := j.due, j.patch(`{"status": "active"}`)
	r.wait = j.waits
	a, err := j.ask(r, outcomes{http.StatusOK: activated, http.StatusConflict: refused})
	if err != nil || a.kind == refused {
		return err
	}
	if j.counts(time.Now()) {
		j.activations.Add(1)
	}
	if freed := j.book.freed(); j.waits && !freed.IsZero() {
		from := due
		if freed.After(due) {
			from = freed
		}
		j.count(handedOver, due, from)
	}
	return j.read(a)
}

func (j *job) patch(body string) request {
	return request{method: http.MethodPatch, path: j.path(), body: body}
}

func (j *job) path() string { return "/v1/claims/" + j.claim.ID + "/" }

// read takes over the server's state of the claim, and records in the books if it is active.
func (j *job) read(a answer) error {
	if err := json.Unmarshal(a.text, &j.claim); err != nil {
		return err
	}
	switch {
	case j.claim.Resource != j.book.resource:
		return fmt.Errorf("unexpected of a claim of %s: %s", j.book.resource, a.text)
	case j.claim.Status == "active" && a.kind != queued:
		return j.book.hold(j.claim.ID, j.claim.Token)
	case j.claim.Status == "waiting" && a.kind == queued:
		return nil
	default:
		return fmt.Errorf("unexpected of %s: %s", kindNames[a.kind], a.text)
	}
}

// work holds the claim for a while, and ends it.
func (j *job) work() error {
	n := 1 + rand.IntN(renewals)
	part := (shortestJob + rand.N(longestJob-shortestJob)) / time.Duration(n+1)
	for range n {
		j.pause(part)
		if _, err := j.ask(j.patch(fmt.Sprintf(`{"ttl": %d}`, leaseSeconds)), outcomes{http.StatusOK: renewed}); err != nil {
			return err
		}
	}
	j.pause(part)
	if chance(careful) {
		if err := j.look(); err != nil {
			return err
		}
	}
	j.book.leave()
	switch {
	case chance(revoked):
		return j.end("revoked")
	case chance(aborted):
		return j.end("aborted")
	default:
		return j.end("released")
	}
}

// look checks the server's state of the claim against the client's.
func (j *job) look() error {
	a, err := j.ask(request{method: http.MethodGet, path: j.path()}, outcomes{http.StatusOK: looked})
	if err != nil {
		return err
	}
	seen := j.claim
	if err := json.Unmarshal(a.text, &seen); err != nil {
		return err
	}
	if seen.Status != "active" || seen.Token != j.claim.Token {
		return fmt.Errorf("unexpected of a claim that is held with token %d: %s", j.claim.Token, a.text)
	}
	return nil
}

func (j *job) end(status string) error {
	kind := cancelled
	if status == "released" {
		kind = ended
	}
	_, err := j.ask(j.patch(fmt.Sprintf(`{"status": %q}`, status)), outcomes{http.StatusNoContent: kind})
	return err
}

// monitor lists claims.
func (t *traffic) monitor(due time.Time) error {
	resource := t.books[rand.IntN(len(t.books))].resource
	filter := strings.Replace(monitored[rand.IntN(len(monitored))], "=R", "="+resource, 1)
	claims, err := t.list(due, filter)
	if err != nil {
		return err
	}
	wanted, err := url.ParseQuery(filter)
	for _, c := range claims {
		if wanted.Has("status") && c.Status != wanted.Get("status") || wanted.Has("resource") && c.Resource != resource {
			return fmt.Errorf("unexpected in the list of %s: %+v", filter, c)
		}
	}
	return err
}
