package recorder

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/history"
)

// watch is a watch, over all its streams so far.
type watch struct {
	history.Watch
	open bool            // on the last of them
	ctx  context.Context // of that: a client that has cancelled it may not look at it again
}

// place is where a watch was when it got a cursor.
type place struct {
	watch *watch
	told  int
}

// watchTap records one stream of a watch.
type watchTap struct {
	grpc.ClientStream
	recorder *Recorder
	request  *models.WatchRequest
	watch    *watch
}

// SendMsg implements grpc.ClientStream.
func (s *watchTap) SendMsg(m any) error {
	s.request = m.(*models.WatchRequest)
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *watchTap) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	switch {
	case err == nil:
		if s.watch == nil {
			s.watch = s.recorder.begin(s.Context(), s.request)
		}
		s.recorder.see(s.watch, s.request, m.(*models.WatchResponse))
	case s.watch != nil:
		s.watch.open = false
	}
	return err
}

// begin begins a watch, or continues one from its cursor.
func (r *Recorder) begin(ctx context.Context, request *models.WatchRequest) *watch {
	w := &watch{open: true, ctx: ctx}
	w.Quiet = !r.busy
	w.Name = request.String()
	w.Sees = func(c *claim.Claim) bool {
		return (request.Resource == nil || c.Resource == request.GetResource()) && strings.HasPrefix(c.Resource, request.GetPrefix()) &&
			(request.Owner == nil || c.Owner == request.GetOwner()) && (request.Session == nil || c.Session == request.GetSession())
	}
	// A cursor that came with the live claims is older than they are, unless nothing has changed: later changes come again.
	if from, ok := r.cursors[cursorOf(request, request.GetCursor())]; ok && (from.told > 0 || from.watch.Quiet) {
		w.Had, w.Synced, w.Quiet, w.Reports = from.watch.Had, from.watch.Synced, from.watch.Quiet, slices.Clone(from.watch.Reports[:from.told])
	}
	r.watches = append(r.watches, w)
	return w
}

// see notes the report of a watch.
func (r *Recorder) see(w *watch, request *models.WatchRequest, response *models.WatchResponse) {
	for _, c := range response.GetSnapshot() {
		w.Had = append(w.Had, seen(c, 0))
	}
	w.Synced = w.Synced || response.GetSynced() && !request.GetNoSnapshot()
	for _, t := range response.GetTransitions() {
		w.Reports = append(w.Reports, seen(t.GetClaim(), claim.Status(t.GetBefore())))
	}
	if cursor := response.GetCursor(); cursor != "" {
		r.cursors[cursorOf(request, cursor)] = place{w, len(w.Reports)}
	}
}

// cursorOf returns a cursor together with the watched claims: watches of different claims may get the same cursor.
func cursorOf(request *models.WatchRequest, cursor string) string {
	filter := proto.Clone(request).(*models.WatchRequest)
	filter.Cursor, filter.NoSnapshot = cursor, false
	return filter.String()
}

func seen(c *models.Claim, before claim.Status) history.Report {
	return history.Report{Resource: c.GetResource(), Claim: c.GetId(), Before: before, After: claim.Status(c.GetStatus()), Token: c.GetToken(), Version: c.GetVersion()}
}
