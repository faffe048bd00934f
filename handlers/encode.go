package handlers

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// encodeResource returns a claim as a lock of Cloud Foundry's Locket.
func encodeResource(c *claim.Claim) *models.Resource {
	r := new(models.Resource)
	encodeInto(r, c)
	return r
}

// encodeInto is encodeResource into an empty message.
func encodeInto(r *models.Resource, c *claim.Claim) {
	r.Key, r.Owner, r.Value, r.Type, r.TypeCode = c.Resource, c.Owner, c.Value, typeName(c.Type), models.TypeCode(c.Type)
}

func encodeClaim(c *claim.Claim, now claim.Instant) *models.Claim {
	encoded := encodeBrief(c)
	encoded.StatusHistory, encoded.WaitingDuration = encodeHistory(c), c.WaitingDuration(now).Seconds()
	if c.Status == claim.Active && c.Session == "" {
		ttl := c.Remaining(now).Seconds()
		granted := c.TTL.Seconds()
		encoded.Ttl, encoded.GrantedTtl = &ttl, &granted
	}
	if active, ok := c.ActiveDuration(now); ok {
		seconds := active.Seconds()
		encoded.ActiveDuration = &seconds
	}
	if c.UserData != nil {
		data := string(c.UserData)
		encoded.UserData = &data
	}
	return encoded
}

// encodeBrief returns a claim without its user data, its status history, and its durations.
func encodeBrief(c *claim.Claim) *models.Claim {
	encoded := &models.Claim{
		Id:       c.ID,
		Resource: c.Resource,
		Owner:    c.Owner,
		Mode:     modeOf(c.Units),
		Status:   models.Status(c.Status),
		Created:  timestamppb.New(c.Created.Std()),
		Token:    c.Token,
		Value:    c.Value,
		TypeCode: models.TypeCode(c.Type),
		Version:  c.Version,
		Reason:   c.Reason,
		Identity: c.Identity,
		EndedBy:  c.EndedBy,
		Session:  c.Session,
	}
	if c.WaitTTL > 0 {
		seconds := c.WaitTTL.Seconds()
		encoded.WaitTtl = &seconds
	}
	return encoded
}

func encodeHistory(c *claim.Claim) []*models.StatusChange {
	changes := c.History()
	encoded := make([]*models.StatusChange, len(changes))
	for i, change := range changes {
		encoded[i] = &models.StatusChange{
			Status:    models.Status(change.Status),
			Timestamp: timestamppb.New(change.At.Std()),
		}
	}
	return encoded
}

// encodeQueue returns a queue. Like a page of a list, it has fewer waiters if they are large.
func encodeQueue(q *db.Snapshot, now claim.Instant) *models.Queue {
	encoded := &models.Queue{Resource: q.Resource, Version: q.Version, Waiting: uint64(q.Waiting)}
	bytes := 0
	for i := range q.Holders {
		holder := encodeClaim(&q.Holders[i], now)
		encoded.Token = max(encoded.GetToken(), holder.GetToken())
		encoded.Holders = append(encoded.Holders, holder)
		bytes += proto.Size(holder)
	}
	for i := range q.Waiters {
		if bytes > pageBytes {
			break
		}
		waiter := encodeClaim(&q.Waiters[i], now)
		waiter.Position = proto.Uint32(uint32(i + 1))
		encoded.Waiters = append(encoded.Waiters, waiter)
		bytes += proto.Size(waiter)
	}
	return encoded
}

// pageBytes is about the maximum size of a page of a list: clients accept 4 MiB by default, and the largest claim has
// 130 KiB.
const pageBytes = 3 << 20

// encodeList returns a page of at most limit claims. One more claim than limit means that there is another page.
func encodeList(claims []claim.Claim, now claim.Instant, limit int, newest bool) *models.ListClaimsResponse {
	list := &models.ListClaimsResponse{}
	bytes := 0
	for i := range claims {
		if i == limit || bytes > pageBytes {
			last := claims[i-1]
			list.NextPageToken = encodeCursor(db.Cursor{Created: last.Created, ID: last.ID}, newest)
			break
		}
		encoded := encodeClaim(&claims[i], now)
		list.Claims = append(list.Claims, encoded)
		bytes += proto.Size(encoded)
	}
	return list
}
