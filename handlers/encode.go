package handlers

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/claim"
	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/models"
)

// encodeResource shows a claim as Cloud Foundry's Locket shows a lock.
func encodeResource(c *claim.Claim) *models.Resource {
	return &models.Resource{
		Key:      c.Resource,
		Owner:    c.Owner,
		Value:    c.Value,
		Type:     typeName(c.Type),
		TypeCode: models.TypeCode(c.Type),
	}
}

func encodeClaim(c *claim.Claim, now claim.Instant) *models.Claim {
	encoded := &models.Claim{
		Id:              c.ID,
		Resource:        c.Resource,
		Owner:           c.Owner,
		Mode:            models.Mode(c.Mode),
		Status:          models.Status(c.Status),
		StatusHistory:   encodeHistory(c),
		Created:         timestamppb.New(c.Created.Std()),
		WaitingDuration: c.WaitingDuration(now).Seconds(),
		Token:           c.Token,
		Value:           c.Value,
		TypeCode:        models.TypeCode(c.Type),
		Version:         c.Version,
		Reason:          c.Reason,
	}
	if c.Status == claim.Active {
		ttl := c.Remaining(now).Seconds()
		encoded.Ttl = &ttl
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

func encodeList(claims []claim.Claim, now claim.Instant, limit int) *models.ListClaimsResponse {
	list := &models.ListClaimsResponse{Claims: make([]*models.Claim, len(claims))}
	for i := range claims {
		list.Claims[i] = encodeClaim(&claims[i], now)
	}
	if len(claims) == limit {
		last := claims[limit-1]
		list.NextPageToken = encodeCursor(db.Cursor{Created: last.Created, ID: last.ID})
	}
	return list
}
