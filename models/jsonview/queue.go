package jsonview

import "github.com/locket-service/locket/models"

// Queue is the queue of a resource.
type Queue = QueueOf[Place]

// QueueOf is a queue whose places are of a type with more members than Place.
type QueueOf[P any] struct {
	Resource string  `json:"resource" doc:"The resource's name."`
	Version  uint64  `json:"version" doc:"Rises with every change of the queue; 0 for an unused name."`
	Token    *uint64 `json:"token" doc:"The largest fencing token of the holders; null if nobody holds the resource."`
	Holders  []P     `json:"holders" doc:"The exclusive holder, or the shared holders."`
	Waiting  uint64  `json:"waiting" doc:"How many claims wait."`
	Waiters  []P     `json:"waiters" doc:"The first waiting claims, in order."`
	Waits    []Wait  `json:"waits" doc:"The waits of the holders for other resources, and so on."`
}

// Wait is a waiting claim, with the claims that it waits for.
type Wait struct {
	Resource string     `json:"resource" doc:"What it waits for."`
	Waiter   ClaimRef   `json:"waiter" doc:"The claim that waits."`
	Holders  []ClaimRef `json:"holders" doc:"The conflicting holders."`
	Ahead    []ClaimRef `json:"ahead" doc:"The first of the conflicting claims before it in the queue."`
}

// ClaimRef is a holding or waiting claim, with its owner.
type ClaimRef struct {
	Claim   string    `json:"claim" doc:"The claim's name."`
	Owner   *string   `json:"owner" doc:"The owner, as the client names itself; null if the client gave none."`
	Session *string   `json:"session" doc:"The session that the claim is bound to; null if it has a TTL of its own."`
	Mode    Mode      `json:"mode" doc:"Whether the claim shares the resource."`
	Since   Timestamp `json:"since" doc:"Since when it holds or waits."`
}

func refOf(c *models.Claim) ClaimRef {
	return ClaimRef{
		Claim: c.GetId(), Owner: unlessZero(c.GetOwner()), Session: unlessZero(c.GetSession()), Mode: Mode(c.GetMode()),
		Since: OfClaim(c).Since(),
	}
}

func refsOf(claims []*models.Claim) []ClaimRef {
	refs := make([]ClaimRef, len(claims))
	for i, c := range claims {
		refs[i] = refOf(c)
	}
	return refs
}

// OfWaits returns the view of a chain of waits.
func OfWaits(waits []*models.Wait) []Wait {
	list := make([]Wait, len(waits))
	for i, w := range waits {
		list[i] = Wait{w.GetWaiter().GetResource(), refOf(w.GetWaiter()), refsOf(w.GetHolders()), refsOf(w.GetAhead())}
	}
	return list
}

// Place is a claim in the queue of its resource.
type Place struct {
	ID              string    `json:"id" doc:"The claim's name."`
	Owner           *string   `json:"owner" doc:"The owner, as the client names itself; null if the client gave none."`
	Identity        *string   `json:"identity" doc:"The authenticated identity of the caller that made the claim; null without authentication."`
	Mode            Mode      `json:"mode" doc:"Whether the claim shares the resource."`
	Type            *Type     `json:"type" doc:"The purpose of the claim."`
	Value           *string   `json:"value" doc:"The beginning of the text that the client gave the claim: at most 200 bytes."`
	Status          Status    `json:"status" doc:"active or waiting."`
	Since           Timestamp `json:"since" doc:"The time of this status."`
	TTL             *Seconds  `json:"ttl" doc:"Seconds left until the claim expires; null while it waits."`
	ActiveDuration  *Seconds  `json:"active_duration" doc:"Seconds; null while it waits."`
	WaitingDuration Seconds   `json:"waiting_duration" doc:"Seconds."`
	Token           *uint64   `json:"token" doc:"The fencing token; null while it waits."`
	Position        *uint32   `json:"position" doc:"The position in the queue, 1 is the next; null for a holder."`
	Version         uint64    `json:"version" doc:"Rises with every change of the claim."`
	Session         *string   `json:"session" doc:"The session that the claim is bound to; null if it has a TTL of its own."`
	WaitTTL         *Seconds  `json:"wait_ttl" doc:"How many seconds the claim may wait without anybody asking about it; null: for ever."`
}

// OfQueue returns the view of a queue; place returns the view of each claim in it.
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
		Holders: places(q.GetHolders()), Waiters: places(q.GetWaiters()), Waits: OfWaits(q.GetWaits()),
	}
}

// OfPlace returns the view of a claim in the queue of its resource.
func OfPlace(claim *models.Claim) Place {
	c := OfClaim(claim)
	return Place{
		ID: c.ID, Owner: c.Owner, Identity: c.Identity, Mode: c.Mode, Type: c.Type, Value: c.Value, Status: c.Status, Since: c.Since(), TTL: c.TTL,
		ActiveDuration: c.ActiveDuration, WaitingDuration: c.WaitingDuration, Token: c.Token, Position: c.Position, Version: c.Version,
		Session: c.Session, WaitTTL: c.WaitTTL,
	}
}

// Resource is a resource with live claims.
type Resource = ResourceOf[Place]

// ResourceOf is a resource or a folder whose holder is of a type with more members than Place.
type ResourceOf[P any] struct {
	Resource   string   `json:"resource" doc:"The resource's name; of a folder, what the names of its resources begin with."`
	Folder     bool     `json:"folder" doc:"Whether this stands for all resources of a folder, with delimiter; the numbers are then 0."`
	Version    uint64   `json:"version" doc:"Rises with every change of its queue."`
	Holding    uint32   `json:"holding" doc:"How many claims hold it: more than one only if they share it."`
	Holder     *P       `json:"holder" doc:"The holder, or the longest holder of several; null for a folder, and where nobody holds it, as in a quarantine."`
	Waiting    uint32   `json:"waiting" doc:"How many claims wait."`
	OldestWait *Seconds `json:"oldest_wait" doc:"How many seconds the first waiter has waited; null if no claim waits."`
	Deadlock   bool     `json:"deadlock" doc:"Whether it is in a deadlock that lasts, because its claims allow that; found within half a minute."`
}

// OfResource returns the view of a resource; place returns the view of its holder.
func OfResource[P any](r *models.ResourceInfo, place func(*models.Claim) P) ResourceOf[P] {
	var holder *P
	if r.GetHolder() != nil {
		holder = new(place(r.GetHolder()))
	}
	return ResourceOf[P]{
		Resource: r.GetResource(), Folder: r.GetFolder(), Version: r.GetVersion(), Holding: r.GetHolding(), Holder: holder, Waiting: r.GetWaiting(),
		OldestWait: (*Seconds)(r.OldestWait), //nolint:protogetter // what is not given is not the same as 0
		Deadlock:   r.GetDeadlock(),
	}
}
