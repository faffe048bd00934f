package gateway

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// operation is an operation of the REST API: the RPC that it calls, how its parameters are decoded, and its entry in
// the OpenAPI document. models/locket.rest.yaml is generated from its route, unless its answer is a stream.
type operation struct {
	method string
	// path may end with the name of a field of the message, in braces. An id contains no slashes; other names may.
	path    string
	id      string
	summary string
	// rpc has only a request if the answer is a stream.
	rpc rpc
	// query and body are structs of parameters, or nil. example is an example of the body. adjust changes or refuses the
	// message that they make; it may be nil.
	query, body any
	adjust      func(*http.Request, proto.Message) *refusal
	example     string
	headers     []headerParameter
	answers     []answer
}

// headerParameter is an optional header of a request.
type headerParameter struct{ name, doc string }

// answer is a possible answer of an operation. All operations also have the commonAnswers.
type answer struct {
	code int
	doc  string
	// body is a view, or a slice of views. If it is nil, an error has a body of problems, and another answer has none.
	body any
	// events are the views of server-sent events, by name, instead of a body.
	events  map[string]any
	headers []string
}

var (
	preferHeader      = headerParameter{"Prefer", "wait=SECONDS (RFC 7240) delays the answer until the claim no longer waits, or the time is up."}
	ifMatchHeader     = headerParameter{"If-Match", "The ETag of the claim: the change is made only if the claim has not changed since."}
	idempotencyHeader = headerParameter{idempotencyKey, "Another way to give the id."}

	badParameters = answer{code: http.StatusBadRequest, doc: "A parameter is missing, unknown or invalid; the keys name it."}
	noClaim       = answer{code: http.StatusNotFound, doc: "No such claim."}
	noSession     = answer{code: http.StatusNotFound, doc: "No such session, or it has ended."}
	notHeld       = answer{code: http.StatusNotFound, doc: "Nobody holds it."}
	othersFirst   = answer{code: http.StatusConflict, doc: "The claim waits for other claims: at position, for holder with claim_id and token, or for holders with the mode shared; or, with Prefer: wait, it was aborted to end a deadlock, with its members in deadlock."}
	notChanged    = answer{code: http.StatusBadRequest, doc: "A parameter is invalid, or the claim's current status, which the body has, does not allow the change."}
	changed       = answer{code: http.StatusOK, doc: "The claim is active.", body: claimView{}, headers: []string{"ETag", "Preference-Applied"}}
	hasChanged    = answer{code: http.StatusPreconditionFailed, doc: "The claim has another version than If-Match; version has it."}
	ended         = answer{code: http.StatusNoContent, doc: "The claim has ended."}

	// bodyAnswers are the further answers of an operation with a body.
	bodyAnswers = []answer{
		{code: http.StatusRequestEntityTooLarge, doc: "The body has more than 512 KiB."},
		{code: http.StatusUnsupportedMediaType, doc: "The body is not application/json in UTF-8, or is compressed."},
	}
	commonAnswers = []answer{
		{code: http.StatusNotAcceptable, doc: "The header Accept excludes all answers of the operation."},
		{code: http.StatusUnauthorized, doc: "The request has no valid credentials; the header lists the accepted kinds.", headers: []string{"WWW-Authenticate"}},
		{code: http.StatusForbidden, doc: "The server's rules do not allow it; or a page of another origin has sent the request."},
		{code: http.StatusMisdirectedRequest, doc: "The Host of the request is not a name of this server."},
		{code: http.StatusTooManyRequests, doc: "The server is overloaded, or the caller is beyond its quota; retry later.", headers: []string{"Retry-After", "RateLimit", "RateLimit-Policy"}},
		{code: http.StatusServiceUnavailable, doc: "The database or the server is not available; retry.", headers: []string{"Retry-After"}},
		{code: http.StatusGatewayTimeout, doc: "The request took too long."},
	}
)

var operations = []operation{
	{
		method: http.MethodPost, path: "/v1/claims", id: "createClaim", summary: "Claim a resource",
		rpc: unary(client.CreateClaim, viewClaim), adjust: takeIdempotencyKey, body: createBody{},
		example: `{"id": "nightly-7", "resource": "nightly-report", "owner": "me", "ttl": 60, "user_data": {"host": "a7"}}`, headers: []headerParameter{preferHeader, idempotencyHeader},
		answers: append([]answer{
			{code: http.StatusCreated, doc: "The claim is active.", body: claimView{}, headers: []string{"Location", "ETag", "Preference-Applied"}},
			{code: http.StatusAccepted, doc: "The claim waits for other claims.", body: claimView{}, headers: []string{"Location", "Retry-After", "ETag", "Preference-Applied"}},
			{code: http.StatusOK, doc: "The request was repeated, and the claim has ended.", body: claimView{}, headers: []string{"Location", "ETag", "Preference-Applied"}},
			badParameters,
			{code: http.StatusConflict, doc: "The id names another claim; or, with no_wait, others hold the resource or wait for it: holder, claim_id and token, or the mode shared, say who holds it; or the claim was aborted to end a deadlock, with its members in deadlock."},
		}, bodyAnswers...),
	},
	{
		method: http.MethodGet, path: "/v1/claims", id: "listClaims", summary: "List claims, oldest or newest first",
		rpc: unary(client.ListClaims, viewList((*models.ListClaimsResponse).GetClaims, viewClaim)), query: listQuery{},
		answers: []answer{
			{code: http.StatusOK, doc: "The claims that match all filters.", body: []claimView{}, headers: []string{"Link"}},
			badParameters,
		},
	},
	{
		method: http.MethodGet, path: "/v1/claims/{id}", id: "getClaim", summary: "Get a claim",
		rpc:     unary(client.GetClaim, viewClaim),
		headers: []headerParameter{preferHeader},
		answers: []answer{
			{code: http.StatusOK, doc: "The claim, live or ended.", body: claimView{}, headers: []string{"ETag", "Preference-Applied"}},
			{code: http.StatusConflict, doc: "With Prefer: wait: the claim was aborted to end a deadlock, with its members in deadlock."},
			noClaim,
		},
	},
	{
		method: http.MethodPatch, path: "/v1/claims/{id}", id: "updateClaim", summary: "Renew, activate or end a claim: either ttl or status",
		rpc: unary(client.UpdateClaim, viewClaim), adjust: oneUpdate, body: updateBody{},
		example: `{"ttl": 60}`, headers: []headerParameter{preferHeader, ifMatchHeader},
		answers: append([]answer{changed, ended, notChanged, noClaim, othersFirst, hasChanged}, bodyAnswers...),
	},
	{
		method: http.MethodPut, path: "/v1/claims/{id}", id: "refreshClaim", summary: "Like PATCH, and ttl together with the status active",
		rpc: unary(client.UpdateClaim, viewClaim), body: updateBody{},
		example: `{"ttl": 60, "status": "active"}`, headers: []headerParameter{preferHeader, ifMatchHeader},
		answers: append([]answer{changed, ended, notChanged, noClaim, othersFirst, hasChanged}, bodyAnswers...),
	},
	{
		method: http.MethodDelete, path: "/v1/claims/{id}", id: "endClaim", summary: "End a claim: an active one is released, a waiting one withdrawn",
		rpc: unary(client.EndClaim, viewClaim), query: endQuery{}, headers: []headerParameter{ifMatchHeader},
		answers: []answer{ended, badParameters, noClaim, hasChanged},
	},
	{
		method: http.MethodGet, path: "/v1/resources/{resource}", id: "getResource", summary: "The holders and the waiters of a resource, in order",
		rpc: unary(client.GetQueue, viewQueue), query: queueQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The queue of the resource.", body: queueView{}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/resources", id: "listResources", summary: "The resources with live claims, with their holders and the number of waiters",
		rpc: unary(client.ListResources, viewList((*models.ListResourcesResponse).GetResources, viewResource)), query: resourcesQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The resources that the caller may read. A page may have fewer than the limit, or none, though the header Link leads to more.", body: []resourceView{}, headers: []string{"Link"}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/sessions", id: "listSessions", summary: "The sessions: what they hold and wait for, where they are attached",
		rpc: unary(client.ListSessions, viewList((*models.ListSessionsResponse).GetSessions, viewSession)), query: sessionsQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The sessions, in the order of their ids: the caller's own, or all with the right to administer.", body: []sessionView{}, headers: []string{"Link"}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/sessions/{id}", id: "getSession", summary: "Get a session",
		rpc:     unary(client.GetSession, viewSession),
		answers: []answer{{code: http.StatusOK, doc: "The session.", body: sessionView{}}, noSession},
	},
	{
		method: http.MethodDelete, path: "/v1/sessions/{id}", id: "endSession", summary: "End a session: all its claims are revoked",
		rpc:     unary(client.EndSession, viewNothing[*models.EndSessionResponse]),
		answers: []answer{{code: http.StatusNoContent, doc: "The session has ended."}, noSession},
	},
	{
		method: http.MethodGet, path: "/v1/status", id: "getStatus", summary: "The status of the service: its servers, its database, the clocks, and problems",
		rpc:     unary(client.GetStatus, viewStatus),
		answers: []answer{{code: http.StatusOK, doc: "The status, as the answering server knows it.", body: statusView{}}},
	},
	{
		method: http.MethodGet, path: "/v1/locks", id: "listLocks", summary: "The held locks, page by page",
		rpc: unary(client.FetchAll, viewList((*models.FetchAllResponse).GetResources, viewLock)), adjust: held(models.TypeCode_LOCK), query: heldQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The locks, in the order of their claims' ids.", body: []lockView{}, headers: []string{"Link"}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/locks/{key}", id: "getLock", summary: "The holder of a lock",
		rpc:     unary(client.Fetch, viewHeld),
		answers: []answer{{code: http.StatusOK, doc: "The lock.", body: heldView{}}, badParameters, notHeld},
	},
	{
		method: http.MethodGet, path: "/v1/presences", id: "listPresences", summary: "The held presences, page by page",
		rpc: unary(client.FetchAll, viewList((*models.FetchAllResponse).GetResources, viewLock)), adjust: held(models.TypeCode_PRESENCE), query: heldQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The presences, in the order of their claims' ids.", body: []lockView{}, headers: []string{"Link"}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/presences/{key}", id: "getPresence", summary: "The holder of a presence",
		rpc:     unary(client.Fetch, viewHeld),
		answers: []answer{{code: http.StatusOK, doc: "The presence.", body: heldView{}}, badParameters, notHeld},
	},
	{
		method: http.MethodGet, path: "/v1/whoami", id: "whoAmI", summary: "The caller's authenticated identity",
		rpc:     unary(client.WhoAmI, viewIdentity),
		answers: []answer{{code: http.StatusOK, doc: "The caller's identity.", body: identityView{}}},
	},
	{
		method: http.MethodGet, path: "/v1/permissions/{resource}", id: "canI", summary: "Whether the caller has a right on a resource",
		rpc: unary(client.CanI, viewPermission), query: rightQuery{},
		answers: []answer{{code: http.StatusOK, doc: "Whether it is allowed.", body: permissionView{}}, badParameters},
	},
	{
		method: http.MethodGet, path: eventsPath, id: "watch", summary: "Every change of status of the claims that match all filters, as server-sent events",
		rpc:   rpc{request: func() proto.Message { return new(models.WatchRequest) }},
		query: eventsQuery{}, adjust: takeLastEventID,
		headers: []headerParameter{{lastEventID, "The id of the last event that was received, to go on after it."}},
		answers: []answer{
			{
				code:   http.StatusOK,
				doc:    "Server-sent events, until the client ends them: claim for each live claim at first, synced, transition for each change, refusals about once a second if they were asked for and there were any, end if there is no more. If changes after the cursor are no longer kept, reset comes first, and then the live claims anew.",
				events: map[string]any{"claim": jsonview.Watched{}, "transition": jsonview.Transition{}, "refusals": jsonview.Refusals{}},
			},
			badParameters,
		},
	},
}

// stream reports whether the answer of an operation continues until the client ends it.
func (o operation) stream() bool { return o.answers[0].events != nil }

// parameterOf returns the name of the REST parameter for a field of the message, for errors. A field without a
// parameter keeps its name.
func (o operation) parameterOf(field string) string {
	for _, parameters := range []any{o.query, o.body} {
		if parameters == nil {
			continue
		}
		for parameter := range reflect.TypeOf(parameters).Fields() {
			if fieldOf(parameter) == field {
				return nameOf(parameter)
			}
		}
	}
	if field == "if_version" {
		return ifMatchHeader.name
	}
	return field
}

// held makes a request for all locks one for the locks of a type, page by page.
func held(t models.TypeCode) func(*http.Request, proto.Message) *refusal {
	return func(_ *http.Request, message proto.Message) *refusal {
		all, _ := message.(*models.FetchAllRequest)
		all.TypeCode = t
		if all.Limit == nil {
			all.Limit = proto.Uint32(1000)
		}
		return nil
	}
}

// rpc is a unary method of the service.
type rpc struct {
	// rpc is a unary method of the service.
	request func() proto.Message
	invoke  func(context.Context, client, proto.Message) (proto.Message, error)
	// view returns an answer in the form that is encoded as JSON. base is the beginning of the URLs in it.
	view func(base string, answer proto.Message) any
}

// unary returns an rpc, made from a method of the service and the view of its answer.
func unary[T any, In interface {
	*T
	proto.Message
}, Out proto.Message, View any](method func(client, context.Context, In, ...grpc.CallOption) (Out, error), view func(base string, answer Out) View) rpc {
	return rpc{
		view:    func(base string, answer proto.Message) any { return view(base, answer.(Out)) },
		request: func() proto.Message { return In(new(T)) },
		invoke: func(ctx context.Context, c client, request proto.Message) (proto.Message, error) {
			return method(c, ctx, request.(In))
		},
	}
}

// at reports whether a path is one of the operation, and returns the name at its end.
func (o operation) at(path string) (name string, here bool) {
	prefix, _, named := strings.Cut(o.path, "{")
	if !named {
		return "", path == o.path
	}
	name, here = strings.CutPrefix(path, prefix)
	return name, here && name != "" && (o.nameInPath() != "id" || !strings.Contains(name, "/"))
}

// nameInPath returns the field of the message at the end of the path.
func (o operation) nameInPath() protoreflect.Name {
	_, field, _ := strings.Cut(o.path, "{")
	return protoreflect.Name(strings.TrimSuffix(field, "}"))
}

// allowed returns the methods of a path, for the header Allow.
func allowed(path string) string {
	if path == signOutPath {
		return http.MethodOptions + ", " + http.MethodPost
	}
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	for _, o := range operations {
		if _, here := o.at(path); here && o.method != http.MethodGet {
			methods = append(methods, o.method)
		}
	}
	return strings.Join(methods, ", ")
}
