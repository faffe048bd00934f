package gateway

import (
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The views add URLs to those of package jsonview. The tags describe them in the OpenAPI
// document; a pointer may be null.

type claimView struct {
	URL string `json:"url" doc:"The claim's address."`
	jsonview.Claim
}

type queueView struct {
	URL string `json:"url" doc:"The resource's address."`
	jsonview.QueueOf[placeView]
}

type placeView struct {
	URL string `json:"url" doc:"The claim's address."`
	jsonview.Place
}

type lockView struct {
	URL string `json:"url" doc:"The lock's address."`
	jsonview.Lock
}

// heldView is a single lock.
type heldView struct {
	lockView
	Token uint64 `json:"token" doc:"The fencing token of the grant."`
}

type resourceView struct {
	URL string `json:"url" doc:"The resource's address."`
	jsonview.ResourceOf[placeView]
}

type sessionView struct {
	URL string `json:"url" doc:"The session's address."`
	jsonview.Session
}

type (
	statusView     struct{ jsonview.ServiceStatus }
	identityView   struct{ jsonview.Identity }
	permissionView struct{ jsonview.Permission }
)

// view returns an answer of the service in the form that is encoded as JSON.
func view(base string, answer proto.Message) any {
	switch answer := answer.(type) {
	case *models.Claim:
		return viewClaim(base, answer)
	case *models.ListClaimsResponse:
		claims := make([]claimView, len(answer.GetClaims()))
		for i, claim := range answer.GetClaims() {
			claims[i] = viewClaim(base, claim)
		}
		return claims
	case *models.Queue:
		return viewQueue(base, answer)
	case *models.FetchAllResponse:
		locks := make([]lockView, len(answer.GetResources()))
		for i, resource := range answer.GetResources() {
			locks[i] = viewLock(base, resource)
		}
		return locks
	case *models.FetchResponse:
		return heldView{viewLock(base, answer.GetResource()), answer.GetToken()}
	case *models.ListResourcesResponse:
		resources := make([]resourceView, len(answer.GetResources()))
		for i, resource := range answer.GetResources() {
			resources[i] = viewResource(base, resource)
		}
		return resources
	case *models.ListSessionsResponse:
		sessions := make([]sessionView, len(answer.GetSessions()))
		for i, session := range answer.GetSessions() {
			sessions[i] = viewSession(base, session)
		}
		return sessions
	case *models.SessionInfo:
		return viewSession(base, answer)
	case *models.ServiceStatus:
		return statusView{jsonview.OfStatus(answer)}
	case *models.Identity:
		return identityView{jsonview.OfIdentity(answer)}
	case *models.CanIResponse:
		return permissionView{jsonview.OfPermission(answer)}
	default:
		return answer
	}
}

func viewClaim(base string, c *models.Claim) claimView {
	return claimView{claimURL(base, c), jsonview.OfClaim(c)}
}

func viewQueue(base string, q *models.Queue) queueView {
	return queueView{resourceURL(base, q.GetResource()), jsonview.OfQueue(q, placeOf(base))}
}

func viewResource(base string, r *models.ResourceInfo) resourceView {
	return resourceView{resourceURL(base, r.GetResource()), jsonview.OfResource(r, placeOf(base))}
}

// placeOf returns what shows a claim in the queue of its resource.
func placeOf(base string) func(*models.Claim) placeView {
	return func(c *models.Claim) placeView { return placeView{claimURL(base, c), jsonview.OfPlace(c)} }
}

func resourceURL(base, name string) string {
	return base + "/v1/resources/" + url.PathEscape(name) + "/"
}

func viewSession(base string, s *models.SessionInfo) sessionView {
	return sessionView{base + "/v1/sessions/" + s.GetId() + "/", jsonview.OfSession(s)}
}

func viewLock(base string, r *models.Resource) lockView {
	return lockView{base + listOf(r) + url.PathEscape(r.GetKey()) + "/", jsonview.OfLock(r)}
}

// listOf returns the path of the list that a lock or a presence is in.
func listOf(r *models.Resource) string {
	if r.GetTypeCode() == models.TypeCode_PRESENCE {
		return presencesPath
	}
	return locksPath
}

const (
	locksPath     = "/v1/locks/"
	presencesPath = "/v1/presences/"
)

// claimURL returns an absolute URL, because clients fetch it unchanged.
func claimURL(base string, c *models.Claim) string { return base + "/v1/claims/" + c.GetId() + "/" }

// head sets the headers of an answer, and returns its status.
func (r *request) head(header http.Header, answer proto.Message) (code int) {
	if list, ok := answer.(interface{ GetNextPageToken() string }); ok && list.GetNextPageToken() != "" {
		header.Set("Link", "<"+r.nextPage(list.GetNextPageToken())+`>; rel="next"`)
	}
	switch answer := answer.(type) {
	case *models.EndSessionResponse:
		return http.StatusNoContent
	case *models.Claim:
		code = codeOf(r.method, answer.GetStatus())
		if answer.GetCreated() == nil { // the caller may not see the claim that it has changed
			code = http.StatusNoContent
		}
		if code != http.StatusNoContent {
			header.Set("ETag", etagOf(answer.GetVersion()))
		}
		if code == http.StatusAccepted && header.Get("Retry-After") == "" {
			header.Set("Retry-After", strconv.Itoa(askAgain(answer)))
		}
		if code != http.StatusOK && r.method == http.MethodPost {
			header.Set("Location", claimURL(r.base, answer))
		}
		return code
	default:
		return http.StatusOK
	}
}

// askAgain returns after how many seconds a client that does not wait with Prefer asks again about a claim
// that waits: soon enough to keep it waiting.
func askAgain(c *models.Claim) int {
	const pause = 5
	if c.WaitTtl == nil {
		return pause
	}
	return max(1, int(min(pause, c.GetWaitTtl()/3)))
}

// codeOf returns the HTTP status of an answer with a claim.
func codeOf(method string, claim models.Status) int {
	switch {
	case method == http.MethodGet:
		return http.StatusOK
	case method == http.MethodPost && claim == models.Status_STATUS_ACTIVE:
		return http.StatusCreated
	case method == http.MethodPost && claim == models.Status_STATUS_WAITING:
		return http.StatusAccepted
	case method == http.MethodPost, claim == models.Status_STATUS_ACTIVE:
		return http.StatusOK
	default:
		return http.StatusNoContent
	}
}
