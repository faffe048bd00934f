package recorder

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/tests/history"
)

// Transport returns one that records the requests about claims over REST.
func (r *Recorder) Transport(base http.RoundTripper) http.RoundTripper {
	return &transport{base, r}
}

type transport struct {
	base     http.RoundTripper
	recorder *Recorder
}

// RoundTrip implements http.RoundTripper. It returns when the whole answer has arrived.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	request, ok := restRequest(req)
	if !ok {
		return t.base.RoundTrip(req)
	}
	call := t.recorder.now()
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		t.recorder.add(call, request, history.Output{Unknown: true})
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	out := history.Output{Unknown: true}
	if err == nil {
		out = restAnswer(resp.StatusCode, body)
	}
	if req.Method == http.MethodPost && req.Header.Get("Prefer") != "" && out.Version != 0 {
		// The answer is the claim after the wait.
		var made restClaim
		_ = json.Unmarshal(body, &made)
		t.recorder.add(call, request, history.Output{})
		t.recorder.add(call, history.Read("", made.ID), out)
		return resp, nil
	}
	t.recorder.add(call, request, out)
	return resp, nil
}

// failing is the rest of a body that could not be read, or its end.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// restParameters are the members of a body, as far as the rules know them.
type restParameters struct {
	Resource, Owner, ID, Mode, Status string
	TTL                               *float64
	WaitTTL                           float64 `json:"wait_ttl"`
	NoWait                            bool    `json:"no_wait"`
}

// restRequest returns the recorded form of a request, unless it is about no claim.
func restRequest(req *http.Request) (history.Request, bool) {
	id, isClaim := strings.CutPrefix(strings.Trim(req.URL.Path, "/"), "v1/claims")
	id = strings.Trim(id, "/")
	var p restParameters
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(body))
		if isClaim = isClaim && err == nil; len(body) > 0 {
			isClaim = isClaim && json.Unmarshal(body, &p) == nil
		}
	}
	switch {
	case !isClaim, (id == "") != (req.Method == http.MethodPost):
		return history.Request{}, false
	case req.Method == http.MethodPost:
		if key := req.Header.Get("Idempotency-Key"); key != "" {
			p.ID = key
		}
		cmd := claim.Create{ID: p.ID, Resource: p.Resource, Owner: p.Owner, WaitTTL: seconds(p.WaitTTL), NoWait: p.NoWait}
		if p.Mode == claim.Shared.String() {
			cmd.Units = claim.Shared
		}
		if p.TTL != nil {
			cmd.TTL = seconds(*p.TTL)
		}
		return history.CreateFor(cmd), true
	case req.Method == http.MethodDelete:
		return history.End("", id), true
	case req.Method == http.MethodGet:
		return history.Read("", id), true
	}
	to := statusOf(p.Status)
	if to == claim.Active {
		if p.TTL == nil {
			return history.Activate("", id, nil), true
		}
		ttl := seconds(*p.TTL)
		return history.Activate("", id, &ttl), true
	}
	return update(id, p.TTL, to), true
}

// restClaim is a claim in an answer, or in an event; what is null is zero.
type restClaim struct {
	ID, Resource, Status string
	Token, Version       uint64
}

func restAnswer(code int, body []byte) history.Output {
	switch code {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted:
		var c restClaim
		if json.Unmarshal(body, &c) == nil {
			return history.Output{Status: statusOf(c.Status), Token: c.Token, Version: c.Version}
		}
	case http.StatusNoContent:
		return history.Output{}
	case http.StatusNotFound:
		return history.Output{Refused: history.NotFound}
	case http.StatusBadRequest:
		return history.Output{Refused: history.Transition}
	case http.StatusConflict:
		return conflict(body)
	}
	return history.Output{Unknown: true}
}

// conflict returns why a request was refused because of other claims.
func conflict(body []byte) history.Output {
	var refused map[string]string
	if json.Unmarshal(body, &refused) != nil {
		return history.Output{Unknown: true}
	}
	if _, waits := refused["position"]; waits {
		return history.Output{Refused: history.Contention}
	}
	token, _ := strconv.ParseUint(refused["token"], 10, 64) // none for shared holders
	if refused["holder"] != "" || refused["mode"] != "" {
		return history.Output{Refused: history.Collision, Holder: refused["holder"], Token: token}
	}
	return history.Output{Unknown: true}
}

// statusOf returns the status with a name, 0 for none.
func statusOf(name string) claim.Status {
	for s := claim.Waiting; s.Valid(); s++ {
		if s.String() == name {
			return s
		}
	}
	return 0
}
