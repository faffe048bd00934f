package gateway

import (
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// The views add URLs to the types of package jsonview. The tags describe them in the OpenAPI document; a pointer may be
// null.

type claimView struct {
	URL string `json:"url" doc:"The claim's address."`
	jsonview.Claim
}

func (claimView) example() string {
	return `{
	"url": "http://127.0.0.1:8892/v1/claims/nightly-7/", "id": "nightly-7", "resource": "nightly-report", "owner": "me",
	"identity": null, "mode": "exclusive", "type": "lock", "value": null, "status": "active",
	"status_history": [
		{"status": "waiting", "timestamp": "2026-11-21T17:47:02.123456Z"},
		{"status": "active", "timestamp": "2026-11-21T17:47:02.123456Z"}
	],
	"created": "2026-11-21T17:47:02.123456Z", "ttl": 59.2, "granted_ttl": 60.0, "active_duration": 0.8, "waiting_duration": 0.0,
	"user_data": {"host": "a7"}, "token": 1795283222123457, "position": null, "version": 1795283222123457,
	"reason": null, "ended_by": null, "session": null, "wait_ttl": null
}`
}

type queueView struct {
	URL string `json:"url" doc:"The resource's address."`
	jsonview.QueueOf[placeView]
}

const holderExample = `{
	"url": "http://127.0.0.1:8892/v1/claims/nightly-7/", "id": "nightly-7", "owner": "me", "identity": null,
	"mode": "exclusive", "type": "lock", "value": null, "status": "active", "since": "2026-11-21T17:47:02.123456Z", "ttl": 59.2,
	"active_duration": 0.8, "waiting_duration": 0.0, "token": 1795283222123457, "position": null, "version": 1795283222123457,
	"session": null, "wait_ttl": null
}`

func (queueView) example() string {
	return `{
		"url": "http://127.0.0.1:8892/v1/resources/nightly-report/", "resource": "nightly-report", "version": 1795283222123457,
		"token": 1795283222123457, "holders": [` + holderExample + `], "waiting": 0, "waiters": [], "waits": []
	}`
}

type placeView struct {
	URL string `json:"url" doc:"The claim's address."`
	jsonview.Place
}

type lockView struct {
	URL string `json:"url" doc:"The lock's address."`
	jsonview.Lock
}

const lockExample = `{"url": "http://127.0.0.1:8892/v1/locks/scheduler/", "key": "scheduler", "owner": "me", "value": "10.0.0.7:80", "type": "lock"}`

func (lockView) example() string {
	return lockExample
}

// heldView is the answer about one lock.
type heldView struct {
	lockView
	Token uint64 `json:"token" doc:"The fencing token of the grant."`
}

func (heldView) example() string {
	return lockExample[:len(lockExample)-1] + `, "token": 1795283222123457}`
}

type resourceView struct {
	URL string `json:"url" doc:"The resource's address; for a folder, the address of the list of its content."`
	jsonview.ResourceOf[placeView]
}

func (resourceView) example() string {
	return `{
		"url": "http://127.0.0.1:8892/v1/resources/nightly-report/", "resource": "nightly-report", "folder": false, "version": 1795283222123999,
		"holding": 1, "holder": ` + holderExample + `, "waiting": 2, "oldest_wait": 12.5, "deadlock": false
	}`
}

type sessionView struct {
	URL string `json:"url" doc:"The session's address."`
	jsonview.Session
}

func (sessionView) example() string {
	return `{
		"url": "http://127.0.0.1:8892/v1/sessions/worker-7-4f1c2a90/", "id": "worker-7-4f1c2a90", "owner": "worker-7", "ttl": 10,
		"server": "06hm3q2f7zj9c2m5t8v0abcdef-1", "ends_in": null, "created": "2026-11-21T17:47:02.123456Z", "holding": 3, "waiting": 1
	}`
}

type (
	statusView     struct{ jsonview.ServiceStatus }
	identityView   struct{ jsonview.Identity }
	permissionView struct{ jsonview.Permission }
)

func (statusView) example() string {
	return `{
		"problems": [],
		"servers": [{"name": "06hm3q2f7zj9c2m5t8v0abcdef", "host": "a7", "version": "v1.4.0", "started": "2026-11-21T17:40:00.5Z", "silent": 0}],
		"database": {"engine": "mysql", "version": "11.8.3-MariaDB"},
		"clock": {"time": "2026-11-21T17:47:02.123456Z", "ahead": 0.002, "skew": 0, "lease_time_runs": true, "reason": null, "outage": 12.5, "idle": 10, "unavailable": 2.5},
		"counts": {"held": 120, "waiting": 7, "sessions": 31}
	}`
}

func (identityView) example() string {
	return `{"name": "spiffe://example.org/deploy", "groups": ["operators"], "authentication": true}`
}

func (permissionView) example() string {
	return `{"allowed": true, "line": 7}`
}

// exemplary is implemented by every view: it returns an example for the OpenAPI document and the page that shows it. A
// test validates the example against the view's schema.
type exemplary interface{ example() string }

// viewList returns the view of a list, made from the view of its items.
func viewList[In, Item, View any](items func(In) []Item, view func(base string, item Item) View) func(string, In) []View {
	return func(base string, answer In) []View {
		views := make([]View, 0, len(items(answer)))
		for _, item := range items(answer) {
			views = append(views, view(base, item))
		}
		return views
	}
}

func viewClaim(base string, c *models.Claim) claimView {
	return claimView{claimURL(base, c), jsonview.OfClaim(c)}
}

func viewQueue(base string, q *models.Queue) queueView {
	return queueView{resourceURL(base, q.GetResource()), jsonview.OfQueue(q, placeOf(base))}
}

func viewResource(base string, r *models.ResourceInfo) resourceView {
	address := resourceURL(base, r.GetResource())
	if r.GetFolder() {
		address = base + "/v1/resources/?prefix=" + url.QueryEscape(r.GetResource())
	}
	return resourceView{address, jsonview.OfResource(r, placeOf(base))}
}

// placeOf returns the view of a claim in the queue of its resource.
func placeOf(base string) func(*models.Claim) placeView {
	return func(c *models.Claim) placeView { return placeView{claimURL(base, c), jsonview.OfPlace(c)} }
}

func resourceURL(base, name string) string {
	return nameURL(base+"/v1/resources/", name)
}

func viewSession(base string, s *models.SessionInfo) sessionView {
	return sessionView{base + "/v1/sessions/" + s.GetId() + "/", jsonview.OfSession(s)}
}

func viewHeld(base string, r *models.FetchResponse) heldView {
	return heldView{viewLock(base, r.GetResource()), r.GetToken()}
}

func viewStatus(_ string, s *models.ServiceStatus) statusView {
	return statusView{jsonview.OfStatus(s)}
}

func viewIdentity(_ string, i *models.Identity) identityView {
	return identityView{jsonview.OfIdentity(i)}
}

func viewPermission(_ string, r *models.CanIResponse) permissionView {
	return permissionView{jsonview.OfPermission(r)}
}

// viewNothing is for answers without a body.
func viewNothing[T any](string, T) any { return nil }

func viewLock(base string, r *models.Resource) lockView {
	return lockView{nameURL(base+listOf(r), r.GetKey()), jsonview.OfLock(r)}
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

// claimURL returns an absolute URL, because clients use it unchanged.
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

// askAgain returns after how many seconds a client that does not wait with Prefer should ask about a waiting claim
// again: soon enough to keep the claim waiting.
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
