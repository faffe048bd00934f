package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// kind is a type of request, depending on the answer.
type kind int

const (
	created kind = iota
	queued
	activated
	refused
	handedOver
	renewed
	ended
	cancelled
	looked
	listed
	kinds
)

var kindNames = [kinds]string{
	created:    "POST: active",
	queued:     "POST: waits",
	activated:  "PATCH status=active: active",
	refused:    "PATCH status=active: still waits",
	handedOver: "PATCH status=active, Prefer: wait (from the release before it)",
	renewed:    "PATCH ttl",
	ended:      "PATCH status=released",
	cancelled:  "PATCH status=withdrawn, aborted, revoked",
	looked:     "GET one claim",
	listed:     "GET a list",
}

// traffic is the state that the clients of a run share.
type traffic struct {
	*links
	books []*book
	// open means that requests are sent at given times, and latency counts from those.
	open bool
	// Requests that are due between begin and end are counted.
	begin, end time.Time

	ctx         context.Context
	abort       context.CancelCauseFunc
	busy        sync.WaitGroup
	histograms  [kinds]histogram
	activations atomic.Int64
	jobs        atomic.Int64
}

func (t *traffic) counts(due time.Time) bool { return !due.Before(t.begin) && due.Before(t.end) }

// request is a client's request.
type request struct {
	method, path, body string
	// wait asks the server to delay the answer until the claim no longer waits.
	wait bool
}

// outcomes are the accepted answers of a request, by status code.
type outcomes map[int]kind

// answer is the server's answer.
type answer struct {
	kind kind
	text []byte
}

// ask sends a request that is due, and counts it, unless it waits: then the caller counts it.
func (t *traffic) ask(due time.Time, r request, expected outcomes) (answer, error) {
	code, text, err := t.send(r)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	kind, ok := expected[code]
	if !ok {
		return answer{}, fmt.Errorf("unexpected of %s %s %s: %d %s", r.method, r.path, r.body, code, text)
	}
	if !r.wait {
		t.count(kind, due, due)
	}
	return answer{kind, text}, nil
}

// count counts an answered request that was due at a time. Its latency begins at from.
func (t *traffic) count(kind kind, due, from time.Time) {
	if t.counts(due) {
		t.histograms[kind].add(time.Since(from))
	}
}

// claimView is the part of a claim that a client reads.
type claimView struct {
	ID       string
	Resource string
	Status   string
	Token    uint64
}

// list returns the claims that match a filter.
func (t *traffic) list(due time.Time, filter string) (claims []claimView, err error) {
	a, err := t.ask(due, request{method: http.MethodGet, path: "/v1/claims/?" + filter}, outcomes{http.StatusOK: listed})
	if err != nil {
		return nil, err
	}
	return claims, json.Unmarshal(a.text, &claims)
}
