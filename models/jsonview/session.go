package jsonview

import "github.com/locket-service/locket/models"

// Session is a session in a list of sessions.
type Session struct {
	ID      string    `json:"id" doc:"The session's name."`
	Owner   string    `json:"owner" doc:"The owner of its claims."`
	TTL     Seconds   `json:"ttl" doc:"How many seconds it lives without a server hearing from its client."`
	Server  *string   `json:"server" doc:"The server that it is attached to; null for none."`
	EndsIn  *Seconds  `json:"ends_in" doc:"Seconds until it ends unless it is resumed; null while it is attached."`
	Created Timestamp `json:"created" doc:"The time of creation."`
	Holding uint32    `json:"holding" doc:"How many resources it holds."`
	Waiting uint32    `json:"waiting" doc:"How many resources it waits for."`
}

// OfSession returns the view of a session.
func OfSession(s *models.SessionInfo) Session {
	return Session{
		ID: s.GetId(), Owner: s.GetOwner(), TTL: Seconds(s.GetTtl()), Server: unlessZero(s.GetServer()),
		EndsIn:  (*Seconds)(s.EndsIn), //nolint:protogetter // what is not given is not the same as 0
		Created: timestampOf(s.GetCreated()), Holding: s.GetHolding(), Waiting: s.GetWaiting(),
	}
}
