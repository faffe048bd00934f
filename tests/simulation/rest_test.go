package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/locket-service/locket/internal/rules/claim"
)

// rest makes a claim over REST, waits for it, renews it, and ends it, or leaves it to itself.
func (w *web) rest() {
	id := w.newID()
	path, code := "/v1/claims/"+id, w.create(id)
	for n := 0; code == http.StatusAccepted || n > 0 && n < 6 && code == http.StatusConflict; n++ {
		if code = w.send(http.MethodPatch, path, map[string]any{"status": "active"}); code == http.StatusOK {
			w.reached.note(handedOnREST)
		}
	}
	if w.IntN(4) == 0 {
		return // nobody ends it
	}
	w.think()
	switch w.IntN(6) {
	case 0:
		w.send(http.MethodPatch, path, map[string]any{"ttl": claimTTL.Seconds()})
	case 1:
		w.send(http.MethodPut, path, map[string]any{"ttl": claimTTL.Seconds(), "status": "active"})
	case 2:
		w.send(http.MethodGet, path, nil)
	}
	if w.IntN(2) == 0 {
		w.send(http.MethodPatch, path, map[string]any{"status": "released"})
	}
	w.insist(func() bool { return unanswered(w.send(http.MethodDelete, path, nil)) })
}

// create sends the request for a claim, perhaps twice, and returns the status of the answer.
func (w *web) create(id string) (code int) {
	mode := []claim.Units{claim.Exclusive, claim.Shared}[w.IntN(4)/3]
	body := map[string]any{"id": id, "owner": id, "resource": w.key(), "mode": mode.String(), "ttl": claimTTL.Seconds(), "no_wait": w.IntN(4) == 0}
	if w.IntN(3) == 0 {
		body["wait_ttl"] = 1
	}
	code = w.send(http.MethodPost, "/v1/claims/", body)
	if !unanswered(code) || w.IntN(2) == 0 {
		return code
	}
	w.move()
	made := w.held.knows(id)
	if code = w.send(http.MethodPost, "/v1/claims/", body); made && !unanswered(code) {
		w.reached.note(repeatedREST)
	}
	return code
}

// send sends a request to the client's present server, and returns the status of the answer, 0 if there is none.
func (w *web) send(method, path string, body map[string]any) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			panic(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, w.pick().url()+path, &content)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if w.IntN(2) == 0 {
		req.Header.Set("Prefer", "wait=1")
	}
	resp, err := w.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// unanswered reports whether the status of an answer leaves open whether the request was carried out.
func unanswered(code int) bool { return code == 0 || code >= http.StatusInternalServerError }

// events watches everything over HTTP, at one server after the other when the connection breaks.
func (w *web) events(ctx context.Context) {
	for ; ctx.Err() == nil; w.think() {
		part, cancel := context.WithTimeout(ctx, time.Duration(10+w.IntN(60))*time.Second)
		_ = w.Events(part, &http.Client{Transport: w.transport}, w.servers[w.server].url(), func() {})
		cancel()
		w.move()
	}
}
