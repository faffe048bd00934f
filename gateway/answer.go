package gateway

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

// claimView is a claim in JSON: the members of the REST requirements
// (docs/sources/rest-requirements.md), with additions. The tags describe it in the OpenAPI
// document; a pointer may be null.
type claimView struct {
	URL             string         `json:"url" doc:"The claim's address."`
	ID              string         `json:"id" doc:"The claim's name."`
	Resource        string         `json:"resource" doc:"The name of the resource."`
	Owner           *string        `json:"owner" doc:"The party that claims; null if the client gave none."`
	Mode            claimMode      `json:"mode" doc:"Whether the claim shares the resource."`
	Type            *lockType      `json:"type" doc:"The purpose of the claim."`
	Value           *string        `json:"value" doc:"Text that the lists of locks and presences show."`
	Status          claimStatus    `json:"status" doc:"waiting, active, or a final status, which never changes."`
	StatusHistory   []statusChange `json:"status_history" doc:"Every status that the claim has had, oldest first."`
	Created         timestamp      `json:"created" doc:"The time of creation."`
	TTL             *seconds       `json:"ttl" doc:"Seconds left until the claim expires; null unless it is active."`
	ActiveDuration  *seconds       `json:"active_duration" doc:"Seconds for which the claim has been active; null until it is, constant once it has ended."`
	WaitingDuration seconds        `json:"waiting_duration" doc:"Seconds for which the claim has waited; constant once it is active or has ended."`
	UserData        *jsonText      `json:"user_data" doc:"The JSON that the client stored with the claim."`
	Token           *uint64        `json:"token" doc:"The fencing token: larger than that of any earlier grant of the resource; null until the claim is active."`
	Position        *uint32        `json:"position" doc:"The place in line of a waiting claim, 1 is the next; null otherwise, in lists, and beyond 1,000."`
	Version         uint64         `json:"version" doc:"Rises with every change of the claim."`
	Reason          *string        `json:"reason" doc:"Why the claim ended, in the words of who ended it."`
}

// statusChange is one entry of a claim's status history.
type statusChange struct {
	Status    claimStatus `json:"status"`
	Timestamp timestamp   `json:"timestamp"`
}

// queueView is the queue of a resource in JSON.
type queueView struct {
	URL      string      `json:"url" doc:"The resource's address."`
	Resource string      `json:"resource" doc:"The resource's name."`
	Version  uint64      `json:"version" doc:"Rises with every change of the queue; 0 for an unused name."`
	Token    *uint64     `json:"token" doc:"The largest fencing token of the holders; null if nobody holds the resource."`
	Holders  []placeView `json:"holders" doc:"The exclusive holder, or the shared holders."`
	Waiting  uint64      `json:"waiting" doc:"How many claims wait."`
	Waiters  []placeView `json:"waiters" doc:"The first waiting claims, in order."`
}

// placeView is a claim in a queueView.
type placeView struct {
	URL             string      `json:"url" doc:"The claim's address."`
	ID              string      `json:"id" doc:"The claim's name."`
	Owner           *string     `json:"owner" doc:"The party that claims; null if the client gave none."`
	Mode            claimMode   `json:"mode" doc:"Whether the claim shares the resource."`
	Type            *lockType   `json:"type" doc:"The purpose of the claim."`
	Status          claimStatus `json:"status" doc:"active or waiting."`
	Since           timestamp   `json:"since" doc:"The time of this status."`
	TTL             *seconds    `json:"ttl" doc:"Seconds left until the claim expires; null while it waits."`
	ActiveDuration  *seconds    `json:"active_duration" doc:"Seconds; null while it waits."`
	WaitingDuration seconds     `json:"waiting_duration" doc:"Seconds."`
	Token           *uint64     `json:"token" doc:"The fencing token; null while it waits."`
	Position        *uint32     `json:"position" doc:"The place in line, 1 is the next; null for a holder."`
	Version         uint64      `json:"version" doc:"Rises with every change of the claim."`
}

// lockView is a lock or a presence in JSON, with the fields of Resource in Cloud Foundry's
// Locket (docs/sources/cloud-foundry-locket.md).
type lockView struct {
	URL   string    `json:"url" doc:"The lock's address."`
	Key   string    `json:"key" doc:"The name of the lock."`
	Owner *string   `json:"owner" doc:"The holder; null for a claim without an owner."`
	Value *string   `json:"value" doc:"Text of the holder for others to read."`
	Type  *lockType `json:"type" doc:"Its purpose: lock or presence."`
}

// heldView is a single lock.
type heldView struct {
	lockView
	Token uint64 `json:"token" doc:"The fencing token of the grant."`
}

// view returns an answer of the service in the form that is encoded as JSON.
func view(ctx context.Context, answer proto.Message) (any, error) {
	base := requestOf(ctx).base
	switch answer := answer.(type) {
	case *models.Claim:
		return viewClaim(base, answer), nil
	case *models.ListClaimsResponse:
		claims := make([]claimView, len(answer.GetClaims()))
		for i, claim := range answer.GetClaims() {
			claims[i] = viewClaim(base, claim)
		}
		return claims, nil
	case *models.Queue:
		return viewQueue(base, answer), nil
	case *models.FetchAllResponse:
		locks := make([]lockView, len(answer.GetResources()))
		for i, resource := range answer.GetResources() {
			locks[i] = viewLock(base, resource)
		}
		return locks, nil
	case *models.FetchResponse:
		return heldView{viewLock(base, answer.GetResource()), answer.GetToken()}, nil
	default:
		return answer, nil
	}
}

func viewClaim(base string, c *models.Claim) claimView {
	v := claimView{
		URL: claimURL(base, c), ID: c.GetId(), Resource: c.GetResource(), Owner: unlessZero(c.GetOwner()),
		Mode: claimMode(c.GetMode()), Type: unlessZero(lockType(c.GetTypeCode())), Value: unlessZero(c.GetValue()),
		Status: claimStatus(c.GetStatus()), Created: timestamp{c.GetCreated()},
		TTL: (*seconds)(c.Ttl), ActiveDuration: (*seconds)(c.ActiveDuration), WaitingDuration: seconds(c.GetWaitingDuration()),
		UserData: (*jsonText)(c.UserData), Token: unlessZero(c.GetToken()), Position: c.Position,
		Version: c.GetVersion(), Reason: unlessZero(c.GetReason()),
	}
	v.StatusHistory = make([]statusChange, len(c.GetStatusHistory()))
	for i, change := range c.GetStatusHistory() {
		v.StatusHistory[i] = statusChange{claimStatus(change.GetStatus()), timestamp{change.GetTimestamp()}}
	}
	return v
}

func viewQueue(base string, q *models.Queue) queueView {
	return queueView{
		URL: base + "/v1/resources/" + url.PathEscape(q.GetResource()) + "/", Resource: q.GetResource(),
		Version: q.GetVersion(), Token: unlessZero(q.GetToken()), Waiting: q.GetWaiting(),
		Holders: viewPlaces(base, q.GetHolders()), Waiters: viewPlaces(base, q.GetWaiters()),
	}
}

func viewPlaces(base string, claims []*models.Claim) []placeView {
	places := make([]placeView, len(claims))
	for i, c := range claims {
		history := c.GetStatusHistory()
		places[i] = placeView{
			URL: claimURL(base, c), ID: c.GetId(), Owner: unlessZero(c.GetOwner()), Mode: claimMode(c.GetMode()),
			Type: unlessZero(lockType(c.GetTypeCode())), Status: claimStatus(c.GetStatus()),
			Since: timestamp{history[len(history)-1].GetTimestamp()},
			TTL:   (*seconds)(c.Ttl), ActiveDuration: (*seconds)(c.ActiveDuration), WaitingDuration: seconds(c.GetWaitingDuration()),
			Token: unlessZero(c.GetToken()), Position: c.Position, Version: c.GetVersion(),
		}
	}
	return places
}

func viewLock(base string, r *models.Resource) lockView {
	return lockView{
		URL: base + listOf(r) + url.PathEscape(r.GetKey()) + "/", Key: r.GetKey(), Owner: unlessZero(r.GetOwner()),
		Value: unlessZero(r.GetValue()), Type: unlessZero(lockType(r.GetTypeCode())),
	}
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

func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// timestamp is a time in RFC 3339, with microseconds.
type timestamp struct{ *timestamppb.Timestamp }

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.AsTime().Format("2006-01-02T15:04:05.000000Z07:00"))
}

// seconds is encoded as a float even if it is whole.
type seconds float64

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	if float64(s) == math.Trunc(float64(s)) {
		return strconv.AppendFloat(nil, float64(s), 'f', 1, 64), nil
	}
	return strconv.AppendFloat(nil, float64(s), 'f', -1, 64), nil
}

// head writes the status and the headers of an answer.
func head(ctx context.Context, w http.ResponseWriter, answer proto.Message) error {
	r := requestOf(ctx)
	r.tellApplied(w.Header())
	switch answer := answer.(type) {
	case *models.ListClaimsResponse:
		if token := answer.GetNextPageToken(); token != "" {
			w.Header().Set("Link", "<"+r.nextPage(token)+`>; rel="next"`)
		}
	case *models.Claim:
		if code := codeOf(r.method, answer.GetStatus()); code != http.StatusOK {
			if r.method == http.MethodPost {
				w.Header().Set("Location", claimURL(r.base, answer))
			}
			if code == http.StatusNoContent {
				w.Header().Del("Content-Type")
			}
			w.WriteHeader(code)
		}
	}
	return nil
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
