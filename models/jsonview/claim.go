// Package jsonview has the JSON form of claims, queues, locks and so on: the answers over REST, and the output of the
// command line with -o json. It is the only place for it, so that the two cannot differ. docs/rest.md describes it to
// people; the tag `doc` of a field describes it in the OpenAPI document.
//
// It is next to package models because it is the wire contract in another notation. It imports only models; package
// gateway and package cli use it. Members are only added.
//
// Every member is always present; one without a value is null. A pointer may be null, another field never is. REST adds
// the member url to the objects, which only a server knows.
package jsonview

import "github.com/locket-service/locket/models"

// Claim is a claim.
type Claim struct {
	ID              string         `json:"id" doc:"The claim's name."`
	Resource        string         `json:"resource" doc:"The name of the resource."`
	Owner           *string        `json:"owner" doc:"The owner, as the client names itself; null if the client gave none."`
	Identity        *string        `json:"identity" doc:"The authenticated identity of the caller that made the claim; null without authentication."`
	Mode            Mode           `json:"mode" doc:"Whether the claim shares the resource."`
	Type            *Type          `json:"type" doc:"The purpose of the claim."`
	Value           *string        `json:"value" doc:"Text that the lists of locks and presences show."`
	Status          Status         `json:"status" doc:"waiting, active, or a final status, which never changes."`
	StatusHistory   []StatusChange `json:"status_history" doc:"Every status that the claim has had, oldest first."`
	Created         Timestamp      `json:"created" doc:"The time of creation."`
	TTL             *Seconds       `json:"ttl" doc:"Seconds left until the claim expires; null unless it is active."`
	GrantedTTL      *Seconds       `json:"granted_ttl" doc:"The TTL at the last grant or renewal; null if ttl is."`
	ActiveDuration  *Seconds       `json:"active_duration" doc:"How many seconds the claim has been active; null until it is active, constant once it has ended."`
	WaitingDuration Seconds        `json:"waiting_duration" doc:"How many seconds the claim has waited; constant once it is active or has ended."`
	UserData        *JSON          `json:"user_data" doc:"The JSON that the client stored with the claim."`
	Token           *uint64        `json:"token" doc:"The fencing token: larger than the token of any earlier grant of the resource; null until the claim is active."`
	Position        *uint32        `json:"position" doc:"The position of a waiting claim in the queue, 1 is the next; null otherwise, in lists, and beyond 1,000."`
	Version         uint64         `json:"version" doc:"Rises with every change of the claim."`
	Reason          *string        `json:"reason" doc:"Why the claim ended, as given by the party that ended it."`
	EndedBy         *string        `json:"ended_by" doc:"The identity that ended the claim; null if it is not known, or if the claim expired."`
	Session         *string        `json:"session" doc:"The session that the claim is bound to; null if it has a TTL of its own."`
	WaitTTL         *Seconds       `json:"wait_ttl" doc:"How many seconds the claim may wait without anybody asking about it; null: for ever."`
}

// StatusChange is an entry of a claim's history.
type StatusChange struct {
	Status    Status    `json:"status"`
	Timestamp Timestamp `json:"timestamp"`
}

// OfClaim returns the view of a claim.
func OfClaim(c *models.Claim) Claim {
	v := Claim{
		ID: c.GetId(), Resource: c.GetResource(), Owner: unlessZero(c.GetOwner()), Identity: unlessZero(c.GetIdentity()),
		Mode: Mode(c.GetMode()), Type: unlessZero(Type(c.GetTypeCode())), Value: unlessZero(c.GetValue()),
		Status: Status(c.GetStatus()), Created: timestampOf(c.GetCreated()),
		TTL: (*Seconds)(c.Ttl), GrantedTTL: (*Seconds)(c.GrantedTtl), ActiveDuration: (*Seconds)(c.ActiveDuration), WaitingDuration: Seconds(c.GetWaitingDuration()),
		UserData: (*JSON)(c.UserData), Token: unlessZero(c.GetToken()), Position: c.Position,
		Version: c.GetVersion(), Reason: unlessZero(c.GetReason()), EndedBy: unlessZero(c.GetEndedBy()),
		Session: unlessZero(c.GetSession()), WaitTTL: (*Seconds)(c.WaitTtl),
	}
	v.StatusHistory = make([]StatusChange, len(c.GetStatusHistory()))
	for i, change := range c.GetStatusHistory() {
		v.StatusHistory[i] = StatusChange{Status(change.GetStatus()), timestampOf(change.GetTimestamp())}
	}
	return v
}

// Since is when the claim got its status.
func (c Claim) Since() Timestamp {
	if n := len(c.StatusHistory); n > 0 {
		return c.StatusHistory[n-1].Timestamp
	}
	return c.Created
}

func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}
