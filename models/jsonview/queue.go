package jsonview

import "github.com/locket-service/locket/models"

// Queue is the queue of a resource.
type Queue = QueueOf[Place]

// QueueOf is a queue whose places are of a type that has more in it than Place.
type QueueOf[P any] struct {
	Resource string  `json:"resource" doc:"The resource's name."`
	Version  uint64  `json:"version" doc:"Rises with every change of the queue; 0 for an unused name."`
	Token    *uint64 `json:"token" doc:"The largest fencing token of the holders; null if nobody holds the resource."`
	Holders  []P     `json:"holders" doc:"The exclusive holder, or the shared holders."`
	Waiting  uint64  `json:"waiting" doc:"How many claims wait."`
	Waiters  []P     `json:"waiters" doc:"The first waiting claims, in order."`
}

// Place is a claim in the queue of its resource.
type Place struct {
	ID              string    `json:"id" doc:"The claim's name."`
	Owner           *string   `json:"owner" doc:"The party that claims; null if the client gave none."`
	Mode            Mode      `json:"mode" doc:"Whether the claim shares the resource."`
	Type            *Type     `json:"type" doc:"The purpose of the claim."`
	Status          Status    `json:"status" doc:"active or waiting."`
	Since           Timestamp `json:"since" doc:"The time of this status."`
	TTL             *Seconds  `json:"ttl" doc:"Seconds left until the claim expires; null while it waits."`
	ActiveDuration  *Seconds  `json:"active_duration" doc:"Seconds; null while it waits."`
	WaitingDuration Seconds   `json:"waiting_duration" doc:"Seconds."`
	Token           *uint64   `json:"token" doc:"The fencing token; null while it waits."`
	Position        *uint32   `json:"position" doc:"The place in line, 1 is the next; null for a holder."`
	Version         uint64    `json:"version" doc:"Rises with every change of the claim."`
}

// OfQueue returns how a queue looks, and each claim in it as place says.
func OfQueue[P any](q *models.Queue, place func(*models.Claim) P) QueueOf[P] {
	places := func(claims []*models.Claim) []P {
		list := make([]P, len(claims))
		for i, c := range claims {
			list[i] = place(c)
		}
		return list
	}
	return QueueOf[P]{
		Resource: q.GetResource(), Version: q.GetVersion(), Token: unlessZero(q.GetToken()), Waiting: q.GetWaiting(),
		Holders: places(q.GetHolders()), Waiters: places(q.GetWaiters()),
	}
}

// OfPlace returns how a claim looks in the queue of its resource.
func OfPlace(claim *models.Claim) Place {
	c := OfClaim(claim)
	return Place{
		ID: c.ID, Owner: c.Owner, Mode: c.Mode, Type: c.Type, Status: c.Status, Since: c.Since(), TTL: c.TTL,
		ActiveDuration: c.ActiveDuration, WaitingDuration: c.WaitingDuration, Token: c.Token, Position: c.Position, Version: c.Version,
	}
}
