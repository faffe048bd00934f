package handlers

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// decodeLock checks the fields in the order of Cloud Foundry's Locket, so that a request with several errors gets the
// same answer.
func decodeLock(req *models.LockRequest) (claim.Command, error) {
	resource := req.GetResource()
	if resource == nil {
		return nil, fieldErrors{{"resource", "is required"}}
	}
	t, err := lockType("resource.type", resource.GetTypeCode(), resource.GetType())
	switch {
	case err != nil:
		return nil, err
	case req.GetTtlInSeconds() <= 0 || req.GetTtlInSeconds() > maxTTLSeconds:
		return nil, wrongField(models.ErrInvalidTTL, "ttl_in_seconds", "must be between 1 and %d", int64(maxTTLSeconds))
	case resource.GetOwner() == "":
		return nil, wrongField(models.ErrInvalidOwner, "resource.owner", "is required")
	}
	var c check
	c.name("resource.key", resource.GetKey())
	c.text("resource.owner", resource.GetOwner())
	c.data("resource.value", resource.GetValue())
	token := c.token(req.Token)
	return claim.Acquire{
		ID:       ids.NewClaim(),
		Resource: resource.GetKey(),
		Owner:    resource.GetOwner(),
		Type:     t,
		TTL:      time.Duration(req.GetTtlInSeconds()) * time.Second,
		Value:    resource.GetValue(),
		Token:    token,
	}, c.err()
}

func decodeRelease(req *models.ReleaseRequest) (claim.Command, error) {
	if req.GetResource() == nil {
		return nil, fieldErrors{{"resource", "is required"}}
	}
	var c check
	c.name("resource.key", req.GetResource().GetKey())
	c.text("resource.owner", req.GetResource().GetOwner())
	token := c.token(req.Token)
	return claim.Release{
		Resource: req.GetResource().GetKey(),
		Owner:    req.GetResource().GetOwner(),
		Token:    token,
	}, c.err()
}

func decodeCreate(req *models.CreateClaimRequest) (claim.Create, error) {
	var c check
	cmd := claim.Create{
		AllowDeadlock: req.GetAllowDeadlock(),
		ID:            req.GetId(), Resource: req.GetResource(), Owner: req.GetOwner(), Value: req.GetValue(),
		Units: c.units(req.GetMode()), Type: c.typeCode(req.GetTypeCode()), NoWait: req.GetNoWait(),
	}
	c.name("resource", req.GetResource())
	c.text("owner", req.GetOwner())
	c.data("value", req.GetValue())
	if req.UserData != nil {
		c.json("user_data", req.GetUserData())
		cmd.UserData = []byte(req.GetUserData())
	}
	c.that(req.Ttl != nil, "ttl", "is required")
	if ttl := c.ttl(req.Ttl); ttl != nil {
		cmd.TTL = *ttl
	}
	if wait := c.seconds("wait_ttl", req.WaitTtl, minWaitTTLSeconds, maxTTLSeconds); wait != nil {
		cmd.WaitTTL = *wait
	}
	if cmd.ID == "" {
		cmd.ID, cmd.New = ids.NewClaim(), true
	}
	c.that(validID(cmd.ID), "id", `must be 1 to %d letters, digits and any of "-._~", not dots alone`, maxID)
	if cmd.Type == claim.Untyped {
		cmd.Type = claim.Lock
	}
	return cmd, c.err()
}

func decodeUpdate(req *models.UpdateClaimRequest) (claim.Command, error) {
	if !validID(req.GetId()) {
		return nil, claim.ErrNotFound
	}
	var c check
	ttl := c.ttl(req.Ttl)
	c.text("reason", req.GetReason())
	to := statusOf(req.GetStatus())
	final := to.Final() && to != claim.Expired
	c.that(req.GetReason() == "" || final, "reason", "goes with a final status only")
	var cmd claim.Command
	switch {
	case to == 0 && req.Ttl == nil:
		c.fail("status", "give a status, or a ttl")
	case to == 0 && ttl != nil:
		cmd = claim.Renew{ID: req.GetId(), TTL: *ttl}
	case to == claim.Active:
		cmd = claim.Activate{ID: req.GetId(), TTL: ttl}
	case final:
		c.that(req.Ttl == nil, "ttl", "does not go together with a final status")
		c.that(claim.Deadlock(to, req.GetReason()) == nil, "reason", "must not begin with %q: only a server ends a deadlock", claim.ReasonDeadlock)
		cmd = claim.SetStatus{ID: req.GetId(), Status: to, Reason: req.GetReason()}
	case to != 0:
		c.fail("status", "must be ACTIVE, RELEASED, ABORTED, WITHDRAWN or REVOKED")
	}
	return ifVersion(req.GetId(), req.IfVersion, cmd), c.err()
}

// ifVersion makes a command conditional on the claim's version; nil: unconditional.
func ifVersion(id string, version *uint64, cmd claim.Command) claim.Command {
	if version == nil {
		return cmd
	}
	return claim.IfVersion{ID: id, Version: *version, Then: cmd}
}

func decodeEnd(req *models.EndClaimRequest) (claim.Command, error) {
	if !validID(req.GetId()) {
		return nil, claim.ErrNotFound
	}
	var c check
	c.text("reason", req.GetReason())
	return ifVersion(req.GetId(), req.IfVersion, claim.End{ID: req.GetId(), Reason: req.GetReason()}), c.err()
}

func decodeQueue(req *models.GetQueueRequest) (resource string, limit int, err error) {
	var c check
	c.name("resource", req.GetResource())
	limit = c.limit(req.Limit, defaultQueue)
	return req.GetResource(), limit, c.err()
}

func decodeFilter(req *models.ListClaimsRequest) (db.Filter, error) {
	var c check
	f := db.Filter{
		Resource: req.Resource, Owner: req.Owner,
		Prefix:     req.GetPrefix(),
		Newest:     req.GetOrder() == models.Order_ORDER_NEWEST,
		Offset:     int(req.GetOffset()),
		MinCreated: decodeTime(&c, "minimum_created", req.GetMinimumCreated()),
		MaxCreated: decodeTime(&c, "maximum_created", req.GetMaximumCreated()),
	}
	c.text("resource", req.GetResource())
	c.text("prefix", req.GetPrefix())
	c.text("owner", req.GetOwner())
	for _, status := range req.GetStatus() {
		known := statusOf(status)
		if c.that(known.Valid(), "status", "unknown status %d", status); !slices.Contains(f.Statuses, known) {
			f.Statuses = append(f.Statuses, known)
		}
	}
	_, known := models.Order_name[int32(req.GetOrder())]
	c.that(known, "order", "unknown order %d", req.GetOrder())
	if req.Mode != nil {
		units := c.units(req.GetMode())
		f.Units = &units
	}
	bound := func(field string, seconds *float64) *time.Duration {
		return c.seconds(field, seconds, -maxTTLSeconds, maxTTLSeconds)
	}
	f.MinActive = bound("minimum_active_duration", req.MinimumActiveDuration)
	f.MaxActive = bound("maximum_active_duration", req.MaximumActiveDuration)
	f.MinWaiting = bound("minimum_waiting_duration", req.MinimumWaitingDuration)
	f.MaxWaiting = bound("maximum_waiting_duration", req.MaximumWaitingDuration)
	f.MinTTL = bound("minimum_ttl", req.MinimumTtl)
	f.MaxTTL = bound("maximum_ttl", req.MaximumTtl)
	f.Limit = c.limit(req.Limit, defaultLimit)
	c.that(req.GetOffset() <= maxOffset, "offset", "must be at most %d; use page_token", maxOffset)
	if req.GetPageToken() != "" {
		cursor, err := decodeCursor(req.GetPageToken(), f.Newest)
		c.that(err == nil, "page_token", "invalid page token, or one of a list in another order")
		c.that(f.Offset == 0, "offset", "does not go together with page_token")
		f.After = cursor
	}
	return f, c.err()
}

func decodeTime(c *check, field string, t *timestamppb.Timestamp) *claim.Time {
	if t == nil {
		return nil
	}
	if err := t.CheckValid(); err != nil {
		c.fail(field, "invalid time: %v", err)
		return nil
	}
	at := claim.Time(t.AsTime().UnixMicro())
	return &at
}

func decodeTimeout(d *durationpb.Duration) (time.Duration, error) {
	if err := d.CheckValid(); err != nil || d.AsDuration() < 0 {
		return 0, fieldErrors{{"timeout", "must be a duration that is not negative"}}
	}
	return d.AsDuration(), nil
}

// newestMark is the prefix of page tokens of lists with the newest claims first.
const newestMark = "newest "

// encodeCursor returns a page token: the place of the last claim of the page, and the order.
func encodeCursor(c db.Cursor, newest bool) string {
	mark := ""
	if newest {
		mark = newestMark
	}
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s%d %s", mark, c.Created, c.ID))
}

func decodeCursor(token string, newest bool) (*db.Cursor, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return nil, err
	}
	place, marked := strings.CutPrefix(string(text), newestMark)
	at, id, _ := strings.Cut(place, " ")
	created, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !validID(id) || marked != newest {
		return nil, fmt.Errorf("not a cursor: %q", text)
	}
	return &db.Cursor{Created: claim.Time(created), ID: id}, nil
}
