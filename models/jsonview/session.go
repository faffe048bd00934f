package jsonview

import "github.com/locket-service/locket/models"

// Session is a session as others see it.
type Session struct {
	ID    string  `json:"id"`
	Owner string  `json:"owner"`
	TTL   Seconds `json:"ttl"`
	// Server is what it is attached to, null for none.
	Server *string `json:"server"`
	// EndsIn is the time until it ends unless it is resumed; null while it is attached.
	EndsIn  *Seconds  `json:"ends_in"`
	Created Timestamp `json:"created"`
	Holding uint32    `json:"holding"`
	Waiting uint32    `json:"waiting"`
}

// OfSession returns the view of a session.
func OfSession(s *models.SessionInfo) Session {
	return Session{
		ID: s.GetId(), Owner: s.GetOwner(), TTL: Seconds(s.GetTtl()), Server: unlessZero(s.GetServer()),
		EndsIn:  (*Seconds)(s.EndsIn), //nolint:protogetter // what is not given is not the same as 0
		Created: timestampOf(s.GetCreated()), Holding: s.GetHolding(), Waiting: s.GetWaiting(),
	}
}
