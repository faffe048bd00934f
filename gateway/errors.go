package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// refusal is the answer to a request that is refused.
type refusal struct {
	code int
	body problems
	// deadlock has the members of a deadlock.
	deadlock json.RawMessage
}

// badRequest returns the refusal of invalid parameters, nil if there are none.
func badRequest(wrong problems) *refusal {
	if len(wrong) == 0 {
		return nil
	}
	return &refusal{code: http.StatusBadRequest, body: wrong}
}

// deadlockView is the body of an answer about a deadlock.
type deadlockView struct {
	Message  string          `json:"message"`
	Deadlock json.RawMessage `json:"deadlock"`
}

// problemType is the media type of errors by RFC 9457, for clients that accept it.
const problemType = "application/problem+json"

// problemView is the body of an error of this type.
type problemView struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Instance identifies the request, as the header X-Request-Id and the log do.
	Instance string `json:"instance,omitempty"`
	// Errors is the body of an ordinary error, without message and deadlock.
	Errors   problems        `json:"errors,omitempty"`
	Deadlock json.RawMessage `json:"deadlock,omitempty"`
}

// problem returns the refusal as a problem of RFC 9457.
func (r *refusal) problem(id string) problemView {
	p := problemView{Title: http.StatusText(r.code), Status: r.code, Errors: maps.Clone(r.body), Deadlock: r.deadlock}
	if id != "" {
		p.Instance = "urn:request:" + url.PathEscape(id)
	}
	if p.Detail = r.body["message"]; p.Detail == "" {
		p.Detail = "parameters are wrong: " + strings.Join(slices.Sorted(maps.Keys(r.body)), ", ")
	}
	delete(p.Errors, "message")
	return p
}

func (r *refusal) write(w http.ResponseWriter, request *http.Request) {
	asProblem := wantsProblem(request)
	w.Header().Set("Content-Type", "application/json")
	if asProblem {
		w.Header().Set("Content-Type", problemType)
	}
	if r.code == http.StatusServiceUnavailable || r.code == http.StatusTooManyRequests {
		if w.Header().Get("Retry-After") == "" && w.Header().Get("RateLimit") == "" { // otherwise limits has set it, if it can help
			w.Header().Set("Retry-After", "1")
		}
	}
	w.WriteHeader(r.code)
	var body any = r.body
	switch {
	case asProblem:
		body = r.problem(w.Header().Get("X-Request-Id"))
	case r.deadlock != nil:
		body = deadlockView{r.body["message"], r.deadlock}
	}
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// writeError answers with an error of the service.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if challenges := models.ErrorInfoOf(err).GetMetadata()[models.ChallengesKey]; challenges != "" {
		w.Header().Set("WWW-Authenticate", challengesFor(r, challenges))
	}
	limits(w.Header(), status.Convert(err))
	requestOf(r.Context()).operation.refusalOf(status.Convert(err)).write(w, r)
}

// challengesFor removes basic authentication from the challenges for scripts of a page, because the browser would show
// a dialog before the script gets the answer.
func challengesFor(r *http.Request, challenges string) string {
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode == "" || mode == "navigate" {
		return challenges
	}
	return strings.Join(slices.DeleteFunc(strings.Split(challenges, ", "), func(challenge string) bool {
		return strings.HasPrefix(challenge, "Basic ") || strings.HasPrefix(challenge, "charset=")
	}), ", ")
}

// httpStatus has the HTTP status of each gRPC code that is not an internal error.
var httpStatus = map[codes.Code]int{
	codes.Canceled:           499, // the client closed the request
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Unavailable:        http.StatusServiceUnavailable,
}

// httpStatusOfReason has the HTTP status of each reason whose status differs from the status of its code.
var httpStatusOfReason = map[string]int{
	models.ReasonVersionChanged: http.StatusPreconditionFailed,
	models.ReasonRolledBack:     http.StatusPreconditionFailed,
}

// refusalOf returns the answer to a request that the service refused.
func (o operation) refusalOf(s *status.Status) *refusal {
	info, violations := models.ErrorInfoOf(s.Err()), violationsOf(s)
	code := cmp.Or(httpStatusOfReason[info.GetReason()], httpStatus[s.Code()], http.StatusInternalServerError)
	r := &refusal{code: code, body: problems{"message": s.Message()}}
	switch {
	case len(violations) > 0:
		r.body = make(problems)
		for _, violation := range violations {
			r.body[o.parameterOf(violation.GetField())] = violation.GetDescription()
		}
	case info.GetReason() == models.ReasonLockCollision:
		r.body["message"] = "others hold the resource or wait for it"
		r.describe(info)
	case info.GetReason() == models.ReasonIDTaken:
		r.body = problems{"id": s.Message()}
	case info.GetReason() == models.ReasonVersionChanged, info.GetReason() == models.ReasonRolledBack:
		r.body["version"] = info.GetMetadata()["version"]
	case info.GetReason() == models.ReasonWrongStatus:
		r.body["status"] = info.GetMetadata()["status"]
	case info.GetReason() == models.ReasonClaimNotFound:
		r.body["message"] = "no claim has this id, or it ended long ago"
	case info.GetReason() == models.ReasonDeadlock:
		r.deadlock = json.RawMessage(info.GetMetadata()[models.DeadlockKey])
	case info.GetReason() == models.ReasonClaimWaits:
		r.describe(info)
	}
	return r
}

// describe adds the holder of the resource, by the names in gRPC's ErrorInfo.
func (r *refusal) describe(info *errdetails.ErrorInfo) {
	for name, value := range info.GetMetadata() {
		if value != "" { // a holder may have no owner
			r.body[name] = value
		}
	}
}

func violationsOf(s *status.Status) []*errdetails.BadRequest_FieldViolation {
	for _, detail := range s.Details() {
		if fields, ok := detail.(*errdetails.BadRequest); ok {
			return fields.GetFieldViolations()
		}
	}
	return nil
}

// failRouting answers requests without a handler.
func failRouting(w http.ResponseWriter, r *http.Request, code int) {
	message := "there is nothing here; see /docs"
	if code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allowed(r.URL.Path))
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		message = r.Method + " is not possible here; see the header Allow"
	}
	(&refusal{code: code, body: problems{"message": message}}).write(w, r)
}

// limits sets the headers of a call that exceeds its quota: Retry-After, and the header fields of the IETF's draft
// on RateLimit. A quota that does not refill has no time, and a quota that is not a rate has no window.
func limits(header http.Header, s *status.Status) {
	info := models.ErrorInfoOf(s.Err())
	if info.GetReason() != models.ReasonQuotaExceeded {
		return
	}
	quota, limit := info.GetMetadata()["quota"], info.GetMetadata()["limit"]
	for _, detail := range s.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			seconds := int(math.Ceil(retry.GetRetryDelay().AsDuration().Seconds()))
			header.Set("Retry-After", strconv.Itoa(seconds))
			policy := fmt.Sprintf(`"%s";q=%s`, quota, limit)
			if quota == "requests_per_second" {
				policy += ";w=1"
			}
			header.Set("RateLimit-Policy", policy)
			header.Set("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, quota, seconds))
			return
		}
	}
	header.Set("RateLimit", fmt.Sprintf(`"%s";r=0`, quota))
}

// accepts reports whether a client accepts a media type, by its header Accept (RFC 9110, section 12.5.1). Without this
// header it accepts all.
func accepts(r *http.Request, mediaType string) bool {
	accepted := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	if strings.TrimSpace(accepted) == "" {
		return true
	}
	kind, _, _ := strings.Cut(mediaType, "/")
	clauses := goautoneg.ParseAccept(accepted)
	for _, match := range []string{mediaType, kind + "/*", "*/*"} { // the most specific clause wins
		for _, clause := range clauses {
			if clause.Type+"/"+clause.SubType == match {
				return clause.Q > 0
			}
		}
	}
	return false
}

// wantsProblem reports whether a client accepts problems (RFC 9457) by their name.
func wantsProblem(r *http.Request) bool {
	named := strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), problemType)
	return named && accepts(r, problemType)
}

// refuseAccept refuses a request whose client accepts no answer of the operation. A client that accepts only problems
// gets other answers as JSON.
func (o operation) refuseAccept(r *http.Request) *refusal {
	types := []string{"application/json", problemType}
	if o.stream() {
		types = []string{"text/event-stream"}
	}
	if slices.ContainsFunc(types, func(mediaType string) bool { return accepts(r, mediaType) }) {
		return nil
	}
	return &refusal{code: http.StatusNotAcceptable, body: problems{"message": "answers here are " + strings.Join(types, " or ") + ", which the header Accept excludes"}}
}
