package keychain

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/base/lease"
)

// The process was stopped until the lease was over. For every first event after it continues, the claim is lost, and
// no further request is sent.
func TestStopped(t *testing.T) {
	for s, events := range map[state][]event{
		stateActive:        {eventRenew, eventRelease, eventSignal, eventRefresh, eventLeaseOver, ""},
		stateRenewing:      {eventOK, eventFailed, eventRefused, eventRelease, eventSignal, ""},
		stateRetryingRenew: {eventRetry, eventRelease, eventSignal, eventRefresh, ""},
	} {
		for _, e := range events {
			kc, err := New("http://127.0.0.1:1", WithTransport(unused{t}))
			if err != nil {
				t.Fatal(err)
			}
			w, err := kc.newWorker("r", nil)
			if err != nil {
				t.Fatal(err)
			}
			w.state, w.timers = s, timers{newTimer(), newTimer(), newTimer(), newTimer(), newTimer()}
			if s == stateRenewing {
				w.attempt = &attempt{cancel: func() {}}
			}
			w.published.extend(lease.WithMargin(time.Now().Add(-time.Minute), time.Minute, 0))
			w.step(e)
			if w.state != stateLost || !errors.Is(w.claim.Err(), ErrTimeUp) || w.attempt != nil {
				t.Errorf("%s, on %q: %s, %v", s, e, w.state, w.claim.Err())
			}
			if err := kc.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// After a request that got no answer in time, connections that are not in use are closed: they
// may be as dead. Not so when it was dropped.
func TestHangUp(t *testing.T) {
	for given, timeout := range map[bool]time.Duration{true: time.Hour, false: time.Millisecond} {
		hungUp := 0
		w := &wire{
			client: &http.Client{Transport: silent{}}, servers: &servers{roots: []*url.URL{{Scheme: "http", Host: "127.0.0.1", Path: "/"}}}, hangUp: func() { hungUp++ },
		}
		ctx, cancel := context.WithCancel(t.Context())
		if given {
			cancel()
		}
		if a := w.do(ctx, request{method: "GET", url: "http://127.0.0.1/", timeout: timeout}); a.err == nil || hungUp == 1 == given {
			t.Errorf("dropped: %t; hung up %d times: %v", given, hungUp, a.err)
		}
		cancel()
	}
}

// silent is a transport over which nothing comes.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// unused is a transport that nobody may use.
type unused struct{ t *testing.T }

func (u unused) RoundTrip(r *http.Request) (*http.Response, error) {
	u.t.Errorf("%s %s", r.Method, r.URL)
	return nil, http.ErrHandlerTimeout
}

// Omitted fields have their defaults, and a Max is not below its First.
func TestRetryDefaults(t *testing.T) {
	all := Retries{Abort: Backoff{Max: time.Millisecond}, Renew: Backoff{First: time.Minute}}.withDefaults()
	if err := all.validate(); err != nil || all.Abort.First != time.Millisecond || all.Renew.Max != time.Minute {
		t.Errorf("%v, %+v", err, all)
	}
	if all := (Retries{}).withDefaults(); all.Abort.Max >= all.Release.Max {
		t.Error("aborting should happen quickly, because the client is failing")
	}
}
