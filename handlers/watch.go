package handlers

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/share"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/watch"
	"github.com/locket-service/locket/models"
)

const (
	// callsPerWatch is how many calls of AwaitClaim a call of Watch counts as.
	callsPerWatch = 10
	// maxSnapshotReads limits how many watches read a page of their snapshot concurrently, and snapshotPage the claims
	// of a page.
	maxSnapshotReads = 4
	snapshotPage     = 1000
	// watchBytes is about the maximum size of a response.
	watchBytes = 256 << 10
	// joinTimeout limits how long a watch waits for a read of the feed, when it begins and for its snapshot.
	joinTimeout = 10 * time.Second
	// sendTimeout limits how long a caller may take to read a response.
	sendTimeout = 10 * time.Second
	// cursorInterval is how often a watch sends a new cursor if nothing has changed, and refusalInterval how often it
	// sends how many requests were refused.
	cursorInterval  = 30 * time.Second
	refusalInterval = time.Second
)

var errTooManyWatches = errors.New("too many watches")

// watches are the calls of Watch on this server.
type watches struct {
	*share.Limit
	reading chan struct{} // has an entry for each read of a snapshot's page
}

func newWatches(limit int) watches {
	return watches{share.NewLasting(limit), make(chan struct{}, maxSnapshotReads)}
}

// Watch implements models.LocketServer.
func (h *handler) Watch(req *models.WatchRequest, stream grpc.ServerStreamingServer[models.WatchResponse]) error {
	ctx := stream.Context()
	filter, cursor, err := decodeWatch(req)
	if err == nil {
		err = h.watch(ctx, filter, cursor, req.GetNoSnapshot(), stream)
	}
	return h.wireError(ctx, err)
}

func (h *handler) watch(ctx context.Context, filter watchFilter, cursor *watch.Cursor, noSnapshot bool, stream grpc.ServerStreamingServer[models.WatchResponse]) error {
	caller := access.CallerOf(ctx)
	if !h.watches.Begin(caller.Name, false) {
		return errTooManyWatches
	}
	defer h.watches.End(caller.Name)
	view := newView(caller)
	if cursor != nil && !view.takeFrom(cursor) {
		return errViewChanged
	}
	joining, cancel := context.WithTimeoutCause(ctx, joinTimeout, db.ErrUnavailable)
	defer cancel()
	w, err := h.Hub.Watch(joining, cursor)
	if err != nil {
		return err
	}
	defer w.Close()
	out := newOutbox(stream)
	defer out.close()
	s := &watching{handler: h, filter: filter, view: view, watcher: w, out: out}
	if filter.refusals {
		s.refusals = h.Hub.Refusals.Read()
		defer s.refusals.Close()
	}
	if cursor == nil && !noSnapshot {
		if err := s.snapshot(ctx); err != nil {
			return err
		}
	}
	begin, err := s.cursor(ctx)
	if err == nil {
		err = out.send(ctx, &models.WatchResponse{Cursor: begin, Synced: cursor == nil})
	}
	if err != nil {
		return err
	}
	return s.follow(ctx)
}

// watchFilter selects the claims of a watch. A nil or zero field matches every claim.
type watchFilter struct {
	resource, owner, session *string
	prefix                   string
	kind                     claim.Type
	// refusals says to send how many requests were refused.
	refusals bool
}

func decodeWatch(req *models.WatchRequest) (f watchFilter, cursor *watch.Cursor, err error) {
	var c check
	f = watchFilter{resource: req.Resource, owner: req.Owner, session: req.Session, prefix: req.GetPrefix(), kind: c.typeCode(req.GetTypeCode()), refusals: req.GetRefusals()}
	if f.resource != nil {
		c.name("resource", *f.resource)
	}
	c.text("prefix", f.prefix)
	c.text("owner", req.GetOwner())
	c.text("session", req.GetSession())
	c.that(!f.refusals || f.owner == nil && f.session == nil && f.kind == claim.Untyped, "refusals", "are counted by resource: not together with owner, session and type_code")
	if req.GetCursor() != "" {
		parsed, err := watch.ParseCursor(req.GetCursor())
		c.that(err == nil, "cursor", "is not a cursor that Watch has given")
		cursor = &parsed
	}
	return f, cursor, c.err()
}

func (f *watchFilter) passes(c *claim.Claim) bool { return f.passesAs(c.Type, c) }

// passesAs is passes for a claim of another type.
func (f *watchFilter) passesAs(kind claim.Type, c *claim.Claim) bool {
	return is(f.resource, c.Resource) && is(f.owner, c.Owner) && is(f.session, c.Session) &&
		strings.HasPrefix(c.Resource, f.prefix) && (f.kind == claim.Untyped || f.kind == kind)
}

// passesChange reports whether a claim passes before or after a change. The other fields of the filter never change.
func (f *watchFilter) passesChange(t claim.Transition) bool {
	return f.passes(t.After) || t.Before != nil && f.passesAs(t.Before.Type, t.After)
}

func is(want *string, s string) bool { return want == nil || *want == s }

// watching is one call of Watch.
type watching struct {
	*handler
	filter  watchFilter
	view    view
	watcher *watch.Watcher
	out     *outbox
	// refusals is nil if they are not to be sent.
	refusals *watch.RefusalReader
}

// snapshot sends the live claims, and the changes up to the time when they were read. A claim that has changed before
// its page was read is left out of the snapshot, because its changes are in the log: so no older state follows a
// newer one. The changes come after the live claims, unless the log would drop them before.
func (s *watching) snapshot(ctx context.Context) error {
	if err := readAhead(ctx, s.watcher, time.Now(), make(changes)); err != nil {
		return err
	}
	ahead, changed := *s.watcher, make(changes)
	for page := (db.Page{Limit: snapshotPage, Bytes: watchBytes}); ; {
		claims, err := s.readPage(ctx, page)
		if err != nil {
			return err
		}
		until, late := time.Now(), s.watcher.Late()
		if err := readAhead(ctx, &ahead, until, changed); err != nil {
			return err
		}
		if len(claims) == 0 {
			return s.catchUp(ctx, until, changed)
		}
		if err := s.sendLive(ctx, claims, changed); err != nil {
			return err
		}
		page.After = claims[len(claims)-1].ID
		if late {
			if err := s.catchUp(ctx, until, changed); err != nil {
				return err
			}
			ahead = *s.watcher
			changed.forget(page.After)
		}
	}
}

// sendLive sends the claims of a page of the snapshot that have not changed.
func (s *watching) sendLive(ctx context.Context, claims []claim.Claim, changed changes) error {
	response := &models.WatchResponse{}
	for i := range claims {
		c := &claims[i]
		if _, later := changed[c.ID]; !later && c.Status.Live() && s.filter.passes(c) { // not live: see visible.Live
			response.Snapshot = append(response.Snapshot, encodeBrief(c))
		}
	}
	if len(response.GetSnapshot()) == 0 {
		return nil
	}
	return s.out.send(ctx, response)
}

// changes are the ids of claims that have changed while a snapshot is read, and whether they have ended.
type changes map[string]bool

func (c changes) add(commits []db.Commit) {
	for _, commit := range commits {
		for _, t := range commit.Changes {
			c[t.After.ID] = t.After.Status.Final()
		}
	}
}

// forget forgets the claims on the pages up to an id.
func (c changes) forget(last string) {
	maps.DeleteFunc(c, func(id string, ended bool) bool { return ended || id <= last })
}

func (s *watching) readPage(ctx context.Context, page db.Page) ([]claim.Claim, error) {
	select {
	case s.watches.reading <- struct{}{}:
		defer func() { <-s.watches.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	caller := access.CallerOf(ctx)
	if !s.view.holdsFor(caller) {
		return nil, errViewChanged
	}
	return s.Store.Live(access.WithCaller(ctx, func() access.Caller { return caller }), db.LiveOf{Resource: s.filter.resource}, page)
}

// readAhead reads the log until it has everything that was committed before a moment, and adds the changed claims to changed.
func readAhead(ctx context.Context, log *watch.Watcher, until time.Time, changed changes) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinTimeout, db.ErrUnavailable)
	defer cancel()
	for {
		commits, err := log.NextBefore(ctx, until)
		if len(commits) == 0 || err != nil {
			return err
		}
		changed.add(commits)
	}
}

// catchUp sends the changes up to a moment, which are in the log, and adds the changed claims to changed. It sends no cursor,
// because the snapshot is not complete before.
func (s *watching) catchUp(ctx context.Context, until time.Time, changed changes) error {
	for {
		commits, err := s.watcher.NextBefore(ctx, until)
		if len(commits) == 0 || err != nil {
			return err
		}
		changed.add(commits)
		response, err := s.send(ctx, commits)
		if err == nil && len(response.GetTransitions()) > 0 {
			err = s.out.send(ctx, response)
		}
		if err != nil {
			return err
		}
	}
}

// follow sends the changes, and from time to time a cursor and how many requests were refused.
func (s *watching) follow(ctx context.Context) error {
	interval := cursorInterval
	if s.refusals != nil {
		interval = refusalInterval
	}
	refresh := time.NewTicker(interval)
	defer refresh.Stop()
	for sent := time.Now(); ; {
		commits, err := s.watcher.Next(ctx, refresh.C)
		if err != nil {
			return err
		}
		response, err := s.send(ctx, commits)
		if err != nil {
			return err
		}
		response.Refusals = s.refused(ctx)
		if len(response.GetTransitions()) == 0 && response.GetRefusals() == 0 && time.Since(sent) < cursorInterval {
			continue
		}
		if response.Cursor, err = s.cursor(ctx); err != nil {
			return err
		}
		if err := s.out.send(ctx, response); err != nil {
			return err
		}
		sent = time.Now()
	}
}

// cursor returns the place after the last sent event. It returns errViewChanged if the caller may see something else by
// now.
func (s *watching) cursor(ctx context.Context) (string, error) {
	if !s.view.holdsFor(access.CallerOf(ctx)) {
		return "", errViewChanged
	}
	return s.view.putInto(s.watcher.Cursor()).String(), nil
}

// refused returns how many requests were refused in the last seconds, for resources that the caller may read.
func (s *watching) refused(ctx context.Context) uint64 {
	caller := access.CallerOf(ctx)
	switch {
	case s.refusals == nil:
		return 0
	case s.filter.resource == nil && s.filter.prefix == "" && !restricted(caller):
		return s.refusals.Next(nil)
	}
	return s.refusals.Next(func(resource string) bool {
		return is(s.filter.resource, resource) && strings.HasPrefix(resource, s.filter.prefix) && caller.Need(access.Read, resource) == nil
	})
}

// send sends the changes of commits that the caller may see. It returns the last response, which is not sent yet, or
// errViewChanged.
func (s *watching) send(ctx context.Context, commits []db.Commit) (*models.WatchResponse, error) {
	response, bytes := &models.WatchResponse{}, 0
	caller := access.CallerOf(ctx)
	if !s.view.holdsFor(caller) { // even if the rules will soon be as before: changes hidden until then would be missing
		return nil, errViewChanged
	}
	for _, commit := range commits {
		for _, t := range commit.Changes {
			if !s.filter.passesChange(t) || !claim.Sees(caller, t.After) {
				continue
			}
			if bytes > watchBytes {
				if err := s.out.send(ctx, response); err != nil {
					return nil, err
				}
				response, bytes = &models.WatchResponse{}, 0
			}
			response.Transitions = append(response.Transitions, encodeTransition(t, commit.At))
			bytes += watchedBytes(t.After)
		}
	}
	return response, nil
}

// watchedBytes is the approximate size of a claim in a response.
func watchedBytes(c *claim.Claim) int {
	return 128 + len(c.ID) + len(c.Resource) + len(c.Owner) + len(c.Value) + len(c.Reason) + len(c.Session) + len(c.Identity) + len(c.EndedBy)
}

func encodeTransition(t claim.Transition, at claim.Time) *models.Transition {
	encoded := &models.Transition{Claim: encodeBrief(t.After), Time: timestamppb.New(at.Std())}
	if t.Before != nil {
		encoded.Before = models.Status(t.Before.Status)
	}
	return encoded
}

// outbox sends the responses of a stream from its own goroutine, so that the call can end while that goroutine is
// blocked by a caller that does not read.
type outbox struct {
	responses chan *models.WatchResponse
	failed    chan struct{}
}

func newOutbox(stream grpc.ServerStreamingServer[models.WatchResponse]) *outbox {
	o := &outbox{responses: make(chan *models.WatchResponse), failed: make(chan struct{})}
	go func() {
		for response := range o.responses {
			if stream.Send(response) != nil {
				close(o.failed)
				return
			}
		}
	}()
	return o
}

// close ends the goroutine, without waiting for a response that is being sent: it ends with the stream.
func (o *outbox) close() { close(o.responses) }

// send sends a response after the previous one. It returns watch.ErrTooSlow if that takes too long.
func (o *outbox) send(ctx context.Context, response *models.WatchResponse) error {
	timeout := time.NewTimer(sendTimeout)
	defer timeout.Stop()
	select {
	case o.responses <- response:
		return nil
	case <-o.failed:
		return context.Canceled // the caller is gone
	case <-timeout.C:
		return watch.ErrTooSlow
	case <-ctx.Done():
		return ctx.Err()
	}
}
