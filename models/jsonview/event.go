package jsonview

import "github.com/locket-service/locket/models"

// Watched is a claim in a watch: without user data, status history and durations.
type Watched struct {
	ID       string    `json:"id" doc:"The claim's name."`
	Resource string    `json:"resource" doc:"The name of the resource."`
	Owner    *string   `json:"owner" doc:"The owner, as the client names itself; null if the client gave none."`
	Identity *string   `json:"identity" doc:"The authenticated identity of the caller that made the claim; null without authentication."`
	Session  *string   `json:"session" doc:"The session that the claim is bound to; null if it has a TTL of its own."`
	Mode     Mode      `json:"mode" doc:"Whether the claim shares the resource."`
	Type     *Type     `json:"type" doc:"The purpose of the claim."`
	Value    *string   `json:"value" doc:"Text that the lists of locks and presences show; null if it has more than 4,096 bytes."`
	Status   Status    `json:"status" doc:"waiting, active, or a final status, which never changes."`
	Created  Timestamp `json:"created" doc:"The time of creation."`
	Token    *uint64   `json:"token" doc:"The fencing token; null until the claim is active."`
	Version  uint64    `json:"version" doc:"Rises with every change of the claim."`
	Reason   *string   `json:"reason" doc:"Why the claim ended, as given by the party that ended it."`
	EndedBy  *string   `json:"ended_by" doc:"The identity that ended the claim; null if it is not known, or if the claim expired."`
	WaitTTL  *Seconds  `json:"wait_ttl" doc:"How many seconds the claim may wait without anybody asking about it; null: for ever."`
}

// Transition is a change of a claim.
type Transition struct {
	Before *Status   `json:"before" doc:"The previous status; null for a new claim, and the claim's status if only its value changed."`
	Time   Timestamp `json:"time" doc:"When, by the database's clock."`
	Claim  Watched   `json:"claim" doc:"The claim after the change."`
}

// Refusals are the requests that were refused.
type Refusals struct {
	Count uint64 `json:"count" doc:"How many requests for the watched resources this server has refused since the last such event."`
}

// OfWatched returns the view of a claim in a watch.
func OfWatched(c *models.Claim) Watched {
	v := OfClaim(c)
	return Watched{
		ID: v.ID, Resource: v.Resource, Owner: v.Owner, Identity: v.Identity, Session: v.Session, Mode: v.Mode, Type: v.Type, Value: v.Value,
		Status: v.Status, Created: v.Created, Token: v.Token, Version: v.Version, Reason: v.Reason, EndedBy: v.EndedBy, WaitTTL: v.WaitTTL,
	}
}

// OfTransition returns the view of a transition.
func OfTransition(t *models.Transition) Transition {
	return Transition{Before: unlessZero(Status(t.GetBefore())), Time: timestampOf(t.GetTime()), Claim: OfWatched(t.GetClaim())}
}
