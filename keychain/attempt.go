package keychain

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// postTimeoutFactor times its timeout is how long a POST may wait for its answer after the worker has dropped it: the
// answer may name a claim that must be withdrawn.
const postTimeoutFactor = 6

// attempt is a request under way. It runs on a goroutine of its own, which does not access the worker.
type attempt struct {
	request
	claim   *Claim
	ctx     context.Context // ends when it is dropped
	cancel  context.CancelFunc
	answers chan answer // not buffered, so that a dropped answer stays with its sender
}

func (w *worker) send(kind action) {
	w.drop()
	ctx, cancel := context.WithCancel(w.keychain.ctx)
	a := &attempt{w.request(kind), w.claim, ctx, cancel, make(chan answer)}
	w.attempt = a
	if kind == sendRenew && w.state.holds() {
		w.shorten(a.ttl)
	}
	if kind == sendRegister {
		if w.firstPOST.IsZero() {
			w.firstPOST = time.Now()
		}
		w.keychain.tasks.Go(a.post)
		return
	}
	again := w.tries > 0
	w.keychain.tasks.Go(func() { a.patch(again) })
}

// drop ends the request under way. The server may still carry it out.
func (w *worker) drop() {
	if w.attempt == nil {
		return
	}
	w.attempt.cancel()
	if w.attempt.kind == sendRenew {
		w.doubt(w.attempt.request)
	}
	w.attempt = nil
}

// give sends an answer to the worker, unless the worker has dropped the attempt.
func (a *attempt) give(r answer) (taken bool) {
	select {
	case a.answers <- r:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// post sends a POST. Its result is used even if the worker has dropped it.
func (a *attempt) post() {
	defer a.cancel()
	kc := a.claim.keychain
	server := kc.wire.servers.asked()
	came := make(chan answer, 1)
	kc.tasks.Go(func() {
		r := a.request
		r.timeout *= postTimeoutFactor
		came <- kc.wire.do(kc.ctx, r)
	})
	timeout := time.NewTimer(a.timeout)
	defer timeout.Stop()
	select {
	case r := <-came:
		if !a.give(r) {
			a.claim.late(&r)
		}
		return
	case <-timeout.C:
		kc.wire.hangUp()
		kc.wire.fail(server)
		a.give(answer{request: a.request, server: server, err: fmt.Errorf("%s %s: no answer within %s", a.method, a.url, a.timeout)})
	case <-a.ctx.Done():
	}
	r := <-came
	a.claim.late(&r)
}

func (a *attempt) patch(again bool) {
	defer a.cancel()
	r := a.claim.keychain.wire.do(a.ctx, a.request)
	switch {
	case r.mustConfirm():
		a.confirm(&r, again)
	case r.mayExplain():
		a.explainEnd(&r)
	}
	a.give(r)
}

// confirm asks a server that does not mark its answers whether the claim has ended, because nothing else
// distinguishes its refusals from a proxy's. If an earlier request to end the claim got no answer, that request may
// have ended it: a server of the REST requirements refuses the same end a second time.
func (a *attempt) confirm(r *answer, again bool) {
	seen := a.look(a.timeout)
	status := seen.member("status")
	switch {
	case seen.err != nil || seen.foreign || seen.code != http.StatusOK || !hasEnded(status):
	case again && status == a.ends:
		r.code = http.StatusNoContent
	default:
		r.confirmed = true
		r.learnEnd(&seen)
	}
}

// maxWhy is how long the keychain may ask how a claim has ended before it reports the loss.
const maxWhy = time.Second

// explainEnd asks how the claim has ended. If the reason of an abort matters and is not known, the request counts as
// failed.
func (a *attempt) explainEnd(r *answer) {
	timeout := maxWhy
	if r.mustExplain() {
		timeout = a.timeout
	}
	seen := a.look(timeout)
	switch {
	case seen.marked && seen.code == http.StatusOK && hasEnded(seen.member("status")):
		r.learnEnd(&seen)
	case r.mustExplain():
		r.err = fmt.Errorf("why the claim was aborted is not known: %w", seen.failure())
	}
}

// look reads the claim.
func (a *attempt) look(timeout time.Duration) answer {
	return a.claim.keychain.wire.do(a.ctx, request{method: http.MethodGet, url: a.url, timeout: min(timeout, a.timeout)})
}

// request returns the request to send now.
func (w *worker) request(kind action) request {
	kc := w.keychain
	r := request{kind: kind, method: http.MethodPatch, url: w.published.now().location, timeout: kc.requestTimeout}
	switch kind {
	case sendRegister:
		r.method, r.url, r.key, r.body = http.MethodPost, kc.wire.servers.claims(), w.key, w.body
	case sendActivate:
		r.body, r.wait = update{Status: "active"}, w.longPoll()
		r.timeout = r.wait + min(r.timeout, w.retention()/3)
		r.explain = w.waitTTL > 0
	case sendRenew:
		r.explain = w.waitTTL > 0 && !w.state.holds()
		r.body, r.ttl = update{TTL: w.ttl.Seconds()}, w.ttl
		r.timeout = min(r.timeout, w.pace()/time.Duration(max(3, 2*len(kc.wire.servers.roots))))
	default:
		r = kc.ending(kind, w.published.now().location)
	}
	return r
}

// ending returns a request that ends a claim.
func (kc *Keychain) ending(kind action, address string) request {
	status := finalStatus[kind]
	return request{
		kind: kind, method: http.MethodPatch, url: address, body: update{Status: status}, ends: status,
		timeout: min(kc.requestTimeout, kc.releaseTimeout/time.Duration(max(3, 1+len(kc.wire.servers.roots)))),
	}
}

// update is the body of PATCH: one of these at a time (the REST requirements).
type update struct {
	TTL    float64 `json:"ttl,omitempty"`
	Status string  `json:"status,omitempty"`
}

// finalStatus is the status that a request to end a claim asks for.
var finalStatus = map[action]string{sendRelease: "released", sendWithdraw: "withdrawn", sendAbort: "aborted"}
