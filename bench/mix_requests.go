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

// kind is a type of request, by what the answer made of it.
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

// traffic is all that the clients of one run share.
type traffic struct {
	*links
	books []*book
	// open is whether requests have a time at which they are due, from which latency
	// counts.
	open bool
	// What is due from begin to end is counted.
	begin, end time.Time

	ctx         context.Context
	abort       context.CancelCauseFunc
	busy        sync.WaitGroup
	histograms  [kinds]histogram
	activations atomic.Int64
}

func (t *traffic) counts(due time.Time) bool { return !due.Before(t.begin) && due.Before(t.end) }

// request is what a client sends.
type request struct {
	method, path, body string
	// wait asks the server to hold the answer until the claim no longer waits.
	wait bool
}

// outcomes are the answers that a request may have, by their codes.
type outcomes map[int]kind

// answer is what a client gets.
type answer struct {
	kind kind
	text []byte
}

// ask sends a request that is due, and counts it. One that waits is left to the caller to
// count.
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

// count adds a request that was due at a time and has just been answered. from is where its
// latency begins.
func (t *traffic) count(kind kind, due, from time.Time) {
	if t.counts(due) {
		t.histograms[kind].add(time.Since(from))
	}
}

// claimView is what a client reads of a claim.
type claimView struct {
	ID       string
	Resource string
	Status   string
	Token    uint64
}

// list returns the claims that pass a filter.
func (t *traffic) list(due time.Time, filter string) (claims []claimView, err error) {
	a, err := t.ask(due, request{method: http.MethodGet, path: "/v1/claims/?" + filter}, outcomes{http.StatusOK: listed})
	if err != nil {
		return nil, err
	}
	return claims, json.Unmarshal(a.text, &claims)
}
