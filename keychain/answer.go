package keychain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds the body of an answer. Locket's largest answer is a claim with user data
// and value of 64 KiB each, written with six characters for each byte.
const maxAnswer = 1 << 20

// answer is the result of a request.
type answer struct {
	request
	sent, came time.Time
	target     string // the requested address
	server     int    // the server's number
	// err is set when there is no answer, or one that cannot be read. The readable parts are still set.
	err      error
	unsent   bool // no connection was made
	code     int
	location string // a usable address, or ""
	applied  bool   // the server has waited
	after    time.Duration
	// marked is set when the answer has Locket's mark. foreign is set when it has none although this service marks
	// its answers; the answer is then ignored.
	marked, foreign bool
	// confirmed is set when the server, asked about the claim, said that it has ended.
	confirmed bool
	// isObject is set when the body is, by its type and as a whole, a JSON object.
	isObject bool
	text     string
	// members are the members of the body, if that is an object.
	members map[string]json.RawMessage
}

// read reads the body: nothing, or an object. If a successful answer has any other body, it comes from a proxy or a
// login portal.
func (a *answer) read(resp *http.Response) error {
	if a.code == http.StatusNoContent {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	a.text = beginning(content)
	if len(content) > maxAnswer {
		err = fmt.Errorf("the answer, %d, has more than %d bytes", a.code, maxAnswer)
	}
	if len(bytes.TrimSpace(content)) > 0 && err == nil {
		err = json.Unmarshal(content, &a.members)
		a.isObject = err == nil && a.members != nil && isJSON(resp.Header.Get("Content-Type"))
	}
	if err != nil && a.code >= 300 {
		return nil // the code says enough
	}
	return err
}

func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
}

// beginning returns the beginning of a body, for the text of an error.
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

// fencingToken returns the token in the answer, 0 if there is none.
func (a *answer) fencingToken() (token uint64) {
	if json.Unmarshal(a.members["token"], &token) != nil {
		return 0
	}
	return token
}

func (a *answer) event() event {
	switch {
	case a.err != nil, a.foreign:
		return eventFailed
	case a.isDenied():
		if a.kind == sendRegister && a.isRefusal() { // no lease is at stake
			return eventRefused
		}
		return eventFailed
	case a.kind == sendActivate && a.code == http.StatusConflict:
		return eventConflict // it changes nothing, even if a proxy sent it
	case a.isClientError():
		return a.refusal()
	case a.code >= 200 && a.code < 300:
		return a.success()
	default: // redirects too: the protocol has none
		return eventFailed
	}
}

// isDenied reports whether the server, or a proxy before it, refused the credentials. New credentials may be
// accepted.
func (a *answer) isDenied() bool {
	switch a.code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return a.err == nil
	}
	return false
}

// isClientError reports whether the code says that the request is wrong; codes for a bad moment, or for a caller
// without rights, do not count.
func (a *answer) isClientError() bool {
	switch a.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false // not now
	}
	return a.err == nil && !a.foreign && !a.isDenied() && a.code >= 400 && a.code < 500
}

// isRefusal reports whether an answer of 4xx comes from the server itself. Locket marks its answers, and its errors
// are JSON objects. The refusal of a server without the mark counts if the server has confirmed that the claim has
// ended; or, before there is a claim to ask for, if the error is a JSON object.
func (a *answer) isRefusal() bool {
	switch {
	case a.marked:
		return a.isObject && a.code != http.StatusProxyAuthRequired
	case a.kind == sendRegister:
		return a.isObject && !a.isDenied()
	default:
		return a.confirmed
	}
}

// refusal sorts an answer of 4xx.
func (a *answer) refusal() event {
	switch {
	case !a.isRefusal():
		return eventFailed
	case a.code == http.StatusNotFound:
		return eventNotFound
	case a.code == http.StatusConflict:
		return eventConflict
	default:
		return eventRefused
	}
}

// mustConfirm reports whether a refusal may come from a proxy, so that the server must be
// asked about the claim.
func (a *answer) mustConfirm() bool {
	return a.isClientError() && !a.marked && a.kind != sendRegister && a.event() == eventFailed
}

// refusesWaitTTL reports whether a server refuses a request because of its wait TTL.
func (a *answer) refusesWaitTTL() bool {
	asked, is := a.body.(registration)
	return is && asked.WaitTTL > 0 && a.code == http.StatusBadRequest && a.event() == eventRefused && strings.Contains(a.text, "wait_ttl")
}

// abandonedReason is the reason of a claim that Locket has aborted because nobody asked about it for
// its wait TTL (docs/rest.md).
const abandonedReason = "nobody asked about the claim for its wait TTL"

// isPlaceLost reports whether Locket says that the claim has ended because it did not hear from the
// keychain: while it waited, or when it was granted.
func (a *answer) isPlaceLost() bool {
	switch a.member("status") {
	case "expired":
		return a.marked && !a.foreign
	case "aborted":
		return a.marked && !a.foreign && a.member("reason") == abandonedReason
	}
	return false
}

// mayExplain reports whether the server, after it has refused to renew or activate a claim, can say how the claim
// ended.
func (a *answer) mayExplain() bool {
	return a.marked && a.ends == "" && a.isClientError() && a.isRefusal() && hasEnded(a.member("status"))
}

// mustExplain reports whether the server must be asked why the claim was aborted.
func (a *answer) mustExplain() bool { return a.explain && a.member("status") == "aborted" }

// learnEnd stores how the claim has ended, as the claim says.
func (a *answer) learnEnd(seen *answer) {
	if a.members == nil {
		a.members = make(map[string]json.RawMessage)
	}
	for _, name := range []string{"status", "reason", "ended_by"} {
		a.members[name] = seen.members[name]
	}
}

// blamesServer reports whether another server may give a better answer.
func (a *answer) blamesServer() bool {
	isAbsent := a.kind == sendRegister && a.code == http.StatusNotFound
	return a.err != nil || a.foreign || isAbsent || a.isDenied() || a.code >= 500 || a.code >= 300 && a.code < 400
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

// failure returns an answer as an error, nil if the request succeeded.
func (a *answer) failure() error {
	if a.err != nil {
		return a.err
	}
	e := &AnswerError{Request: a.method + " " + a.target, Code: a.code, Body: a.text}
	if status := a.member("status"); hasEnded(status) {
		e.Status, e.Reason, e.EndedBy = status, a.member("reason"), a.member("ended_by")
	}
	switch a.event() {
	case eventCreated, eventAccepted, eventNoContent:
		return nil
	case eventOK:
		if a.kind != sendRegister {
			return nil
		}
	case eventRefused:
		if a.code < 300 {
			e.problem = "without a Location that can be used"
		}
	case eventFailed:
		switch {
		case a.foreign:
			e.problem = "not an answer of Locket"
		case a.isClientError():
			e.problem = "perhaps not an answer of the server"
		case a.code < 400:
			e.problem = "nothing that the protocol has here"
		}
	}
	return e
}

// ttlLeft returns the remaining TTL in an answer, and whether the answer has one.
func (a *answer) ttlLeft() (left time.Duration, told bool) {
	var seconds *float64
	if json.Unmarshal(a.members["ttl"], &seconds) != nil || seconds == nil {
		return 0, false
	}
	const most = float64(math.MaxInt64 / 2)
	return time.Duration(max(-most, min(most, *seconds*float64(time.Second)))), true
}

// hasEnded reports whether a status is a final one (the REST requirements).
func hasEnded(status string) bool {
	switch status {
	case "aborted", "expired", "released", "revoked", "withdrawn":
		return true
	}
	return false
}
