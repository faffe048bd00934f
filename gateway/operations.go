package gateway

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// operation is one thing that can be asked for over REST: how its parameters are read, and
// what the OpenAPI document says of it. Its route is in models/locket.rest.yaml.
type operation struct {
	method  string
	path    string
	id      string
	summary string
	// translate is nil where the path says it all.
	translate translator
	// query and body are structs of parameters, nil for none.
	query, body any
	headers     []headerParameter
	answers     []answer
}

// headerParameter is a header that a request may have.
type headerParameter struct{ name, doc string }

// answer is one that an operation may give. Beside those that are listed, all may give
// the commonAnswers.
type answer struct {
	code int
	doc  string
	// body is a view, or a slice of views; nil for problems if the code is one of an
	// error, and for nothing otherwise.
	body    any
	headers []string
}

var (
	preferHeader      = headerParameter{"Prefer", "wait=SECONDS (RFC 7240) holds the answer until the claim no longer waits, or the time is up."}
	idempotencyHeader = headerParameter{idempotencyKey, "Another way to give the id."}

	badParameters = answer{code: http.StatusBadRequest, doc: "A parameter is missing, unknown or wrong; the keys name it."}
	noClaim       = answer{code: http.StatusNotFound, doc: "There is no such claim."}
	notHeld       = answer{code: http.StatusNotFound, doc: "Nobody holds it."}
	othersFirst   = answer{code: http.StatusConflict, doc: "The claim waits for others."}
	notChanged    = answer{code: http.StatusBadRequest, doc: "A parameter is wrong, or the claim's status, which is told, does not allow the change."}
	changed       = answer{code: http.StatusOK, doc: "The claim is active.", body: claimView{}, headers: []string{"Preference-Applied"}}
	ended         = answer{code: http.StatusNoContent, doc: "The claim has ended."}

	// bodyAnswers are those of an operation that has a body.
	bodyAnswers = []answer{
		{code: http.StatusRequestEntityTooLarge, doc: "The body has more than 512 KiB."},
		{code: http.StatusUnsupportedMediaType, doc: "The body is not application/json in UTF-8, or is compressed."},
	}
	commonAnswers = []answer{
		{code: http.StatusServiceUnavailable, doc: "The database or the server is not available; ask again.", headers: []string{"Retry-After"}},
		{code: http.StatusGatewayTimeout, doc: "The request took too long."},
	}
)

var operations = []operation{
	{
		method: http.MethodPost, path: "/v1/claims", id: "createClaim", summary: "Claim a resource",
		translate: translateCreate, body: createBody{}, headers: []headerParameter{preferHeader, idempotencyHeader},
		answers: append([]answer{
			{code: http.StatusCreated, doc: "The claim is active.", body: claimView{}, headers: []string{"Location", "Preference-Applied"}},
			{code: http.StatusAccepted, doc: "The claim waits for others.", body: claimView{}, headers: []string{"Location", "Preference-Applied"}},
			{code: http.StatusOK, doc: "The request was repeated, and the claim has ended by now.", body: claimView{}, headers: []string{"Location", "Preference-Applied"}},
			badParameters,
			{code: http.StatusConflict, doc: "The id names another claim."},
		}, bodyAnswers...),
	},
	{
		method: http.MethodGet, path: "/v1/claims", id: "listClaims", summary: "List claims, oldest first",
		translate: query[listQuery], query: listQuery{},
		answers: []answer{
			{code: http.StatusOK, doc: "The claims that pass every filter.", body: []claimView{}, headers: []string{"Link"}},
			badParameters,
		},
	},
	{
		method: http.MethodGet, path: "/v1/claims/{id}", id: "getClaim", summary: "Look at a claim",
		headers: []headerParameter{preferHeader},
		answers: []answer{
			{code: http.StatusOK, doc: "The claim, live or ended.", body: claimView{}, headers: []string{"Preference-Applied"}},
			noClaim,
		},
	},
	{
		method: http.MethodPatch, path: "/v1/claims/{id}", id: "updateClaim", summary: "Renew, activate or end a claim: either ttl or status",
		translate: translatePatch, body: updateBody{}, headers: []headerParameter{preferHeader},
		answers: append([]answer{changed, ended, notChanged, noClaim, othersFirst}, bodyAnswers...),
	},
	{
		method: http.MethodPut, path: "/v1/claims/{id}", id: "refreshClaim", summary: "The same, and ttl together with the status active",
		translate: body[updateBody], body: updateBody{}, headers: []headerParameter{preferHeader},
		answers: append([]answer{changed, ended, notChanged, noClaim, othersFirst}, bodyAnswers...),
	},
	{
		method: http.MethodDelete, path: "/v1/claims/{id}", id: "endClaim", summary: "Give a claim up: an active one is released, a waiting one withdrawn",
		translate: query[endQuery], query: endQuery{},
		answers: []answer{ended, badParameters, noClaim},
	},
	{
		method: http.MethodGet, path: "/v1/resources/{resource}", id: "getResource", summary: "Who holds a resource, and who waits, in order",
		translate: query[queueQuery], query: queueQuery{},
		answers: []answer{{code: http.StatusOK, doc: "The queue of the resource.", body: queueView{}}, badParameters},
	},
	{
		method: http.MethodGet, path: "/v1/locks", id: "listLocks", summary: "Every lock that is held",
		translate: held(models.TypeCode_LOCK),
		answers:   []answer{{code: http.StatusOK, doc: "The locks, in no order.", body: []lockView{}}},
	},
	{
		method: http.MethodGet, path: "/v1/locks/{key}", id: "getLock", summary: "Who holds a lock",
		answers: []answer{{code: http.StatusOK, doc: "The lock.", body: heldView{}}, badParameters, notHeld},
	},
	{
		method: http.MethodGet, path: "/v1/presences", id: "listPresences", summary: "Every presence that is announced",
		translate: held(models.TypeCode_PRESENCE),
		answers:   []answer{{code: http.StatusOK, doc: "The presences, in no order.", body: []lockView{}}},
	},
	{
		method: http.MethodGet, path: "/v1/presences/{key}", id: "getPresence", summary: "Who announces a presence",
		answers: []answer{{code: http.StatusOK, doc: "The presence.", body: heldView{}}, badParameters, notHeld},
	},
}

// held asks for every lock of a type.
func held(t models.TypeCode) translator {
	return func(*http.Request) (proto.Message, *refusal) { return &models.FetchAllRequest{TypeCode: t}, nil }
}

// translators are found by method and path.
var translators = func() map[string]translator {
	found := make(map[string]translator)
	for _, o := range operations {
		if o.translate != nil {
			found[o.method+" "+o.path] = o.translate
		}
	}
	return found
}()

// pathOf returns the path of the operation that a pattern of the mux belongs to.
var pathOf = strings.NewReplacer("=**", "", "=*", "").Replace

// allowed returns the methods of a path that is served.
func allowed(path string) string {
	methods := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	for _, o := range operations {
		prefix, _, parameter := strings.Cut(o.path, "{")
		if path == o.path || (parameter && strings.HasPrefix(path, prefix)) {
			if o.method != http.MethodGet {
				methods = append(methods, o.method)
			}
		}
	}
	return strings.Join(methods, ", ")
}
