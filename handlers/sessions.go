package handlers

import (
	"context"
	"encoding/base64"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

const defaultSessions = 100 // in one page

// ListSessions implements models.LocketServer.
func (h *handler) ListSessions(ctx context.Context, req *models.ListSessionsRequest) (*models.ListSessionsResponse, error) {
	var c check
	limit := c.limit(req.Limit, defaultSessions)
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	c.that(req.GetPageToken() == "" || err == nil && validSessionID(string(after)), "page_token", "invalid page token")
	if err := c.err(); err != nil {
		return nil, h.wireError(ctx, err)
	}
	sessions, now, err := h.visibleSessions(ctx, string(after), limit+1) // one more, to see whether there is another page
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return encodeSessions(sessions, now, limit), nil
}

// visibleSessions returns up to limit sessions that the caller may see, after an id: its own sessions, or all with the
// right to administer.
func (h *handler) visibleSessions(ctx context.Context, after string, limit int) (visible []db.SessionCount, now claim.Instant, err error) {
	caller := access.CallerOf(ctx)
	if caller.NeedAll(access.Administer, "") == nil {
		return h.Sessions.List(ctx, after, limit)
	}
	for seen := 0; ; {
		some, now, err := h.Sessions.List(ctx, after, readAtOnce)
		if err != nil || len(some) == 0 {
			return visible, now, err
		}
		if seen += len(some); seen > maxHidden {
			return nil, now, hidden(seen)
		}
		after = some[len(some)-1].ID
		for _, s := range some {
			if !caller.Owns(s.Identity) {
				continue
			}
			if visible = append(visible, s); len(visible) == limit {
				return visible, now, nil
			}
		}
	}
}

// encodeSessions returns a page of at most limit sessions. One more session than limit means that there is another
// page.
func encodeSessions(sessions []db.SessionCount, now claim.Instant, limit int) *models.ListSessionsResponse {
	page := &models.ListSessionsResponse{}
	for i := range sessions {
		if i == limit {
			page.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(sessions[i-1].ID))
			break
		}
		page.Sessions = append(page.Sessions, encodeSession(&sessions[i], now))
	}
	return page
}

func encodeSession(s *db.SessionCount, now claim.Instant) *models.SessionInfo {
	encoded := &models.SessionInfo{
		Id: s.ID, Owner: s.Owner, Ttl: s.TTL.Seconds(), Server: s.Server, Created: timestamppb.New(s.Created.Std()),
		Holding: uint32(s.Active), Waiting: uint32(s.Waiting),
	}
	if s.Server == "" {
		left := max(0, s.Deadline.Sub(now.Lease)).Seconds()
		encoded.EndsIn = &left
	}
	return encoded
}

func (h *handler) GetSession(ctx context.Context, req *models.GetSessionRequest) (*models.SessionInfo, error) {
	found, now, err := h.visibleSession(ctx, req.GetId())
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return encodeSession(&found, now), nil
}

func (h *handler) EndSession(ctx context.Context, req *models.EndSessionRequest) (*models.EndSessionResponse, error) {
	_, _, err := h.visibleSession(ctx, req.GetId())
	if err == nil {
		err = h.Sessions.End(ctx, req.GetId())
	}
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return &models.EndSessionResponse{}, nil
}

// visibleSession returns a session that the caller may see and end. For any other session it returns
// claim.ErrSessionEnded.
func (h *handler) visibleSession(ctx context.Context, id string) (db.SessionCount, claim.Instant, error) {
	if !validSessionID(id) {
		return db.SessionCount{}, claim.Instant{}, claim.ErrSessionEnded
	}
	found, now, err := h.Sessions.Get(ctx, id)
	if caller := access.CallerOf(ctx); err == nil && !caller.Owns(found.Identity) && caller.NeedAll(access.Administer, "") != nil {
		return db.SessionCount{}, now, claim.ErrSessionEnded
	}
	return found, now, err
}

func (h *handler) ResetSessions(ctx context.Context, req *models.ResetSessionsRequest) (*models.ResetSessionsResponse, error) {
	var c check
	for _, id := range req.GetKeep() {
		if !validSessionID(id) {
			c.fail("keep", `must be ids of sessions: %d to %d letters, digits and any of "-._~", not dots alone`, minSecret, maxID)
			return nil, h.wireError(ctx, c.err())
		}
	}
	ended, err := h.Sessions.Reset(ctx, req.GetKeep())
	if err != nil {
		return nil, h.wireError(ctx, err)
	}
	return &models.ResetSessionsResponse{Ended: uint32(ended)}, nil
}
