package lock

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// WatchEvent is an event of a Watch. At most one of Claim, Transition, Missed and Broken is set.
type WatchEvent struct {
	// Claim is a live claim in the snapshot that begins a watch without a cursor.
	Claim *models.Claim
	// Transition is a change of a claim.
	Transition *models.Transition
	// Synced is set when the snapshot is complete.
	Synced bool
	// Cursor is where another watch continues after this event; "" within changes that belong together.
	Cursor string
	// Missed is set if earlier events must be discarded: changes after the cursor are no longer kept, or the watch
	// was interrupted before its snapshot was complete. A new snapshot follows, unless the request wants none.
	Missed bool
	// Refusals is how many requests for these resources the server has refused since its last report, if the request
	// asks for refusals.
	Refusals uint64
	// Broken is why the watch was interrupted. It continues by itself, at another server if necessary.
	Broken error
}

// Watch follows the claims that match a request, until the loop ends, ctx is done, the connection is closed, or the
// servers refuse; the last pair has the error. It reports each change once, in order per resource. When a server ends,
// it continues at another one without a gap. Values of more than 4,096 bytes are left out.
func Watch(ctx context.Context, client models.LocketClient, request *models.WatchRequest) iter.Seq2[WatchEvent, error] {
	return func(yield func(WatchEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		request, _ := proto.Clone(request).(*models.WatchRequest)
		ended := false // the loop
		w := &watch{request: request, seen: make(map[string]uint64), tell: func(e WatchEvent) error {
			if ctx.Err() == nil && !yield(e, nil) {
				ended = true
				cancel()
			}
			return ctx.Err()
		}}
		f := &feed.Feed{
			Client: func() (feed.Client, error) { return client, nil }, Request: request, Longest: feed.MaxPause,
			Take:   func(_ context.Context, m *models.WatchResponse) error { return w.take(m) },
			Broken: func(err error) { w.broken(err) },
		}
		if err := f.Run(ctx); !ended {
			yield(WatchEvent{}, err)
		}
	}
}

// watch is one call of Watch.
type watch struct {
	tell func(WatchEvent) error
	// request is for the next stream.
	request *models.WatchRequest
	// started is set when a part of a snapshot was delivered, and no cursor has come yet.
	started bool
	// seen has the versions of claims that have come since the last cursor: they come again when the stream breaks.
	seen map[string]uint64
}

// take tells what a message brings.
func (w *watch) take(m *models.WatchResponse) error {
	if n := m.GetRefusals(); n > 0 { // which do not come again
		if err := w.tell(WatchEvent{Refusals: n}); err != nil {
			return err
		}
	}
	var events []WatchEvent
	for _, c := range m.GetSnapshot() {
		events = append(events, WatchEvent{Claim: c})
	}
	for _, t := range m.GetTransitions() {
		if c := t.GetClaim(); c.GetVersion() > w.seen[c.GetId()] {
			events = append(events, WatchEvent{Transition: t})
		}
	}
	if last := len(events) - 1; m.GetSynced() || m.GetCursor() != "" && (last < 0 || events[last].Transition == nil) {
		events = append(events, WatchEvent{Synced: m.GetSynced(), Cursor: m.GetCursor()})
	} else if last >= 0 {
		events[last].Cursor = m.GetCursor()
	}
	w.started = m.GetCursor() == "" && w.request.GetCursor() == "" && (w.started || len(events) > 0)
	for _, e := range events {
		if err := w.tell(e); err != nil {
			return err
		}
		if c := e.Transition.GetClaim(); c != nil {
			w.seen[c.GetId()] = c.GetVersion()
		}
	}
	if m.GetCursor() != "" {
		clear(w.seen)
	}
	return nil
}

// broken tells that a stream has ended, and whether its cursor is of no use any more.
func (w *watch) broken(err error) {
	if models.ReasonOf(err) != models.ReasonCursorTooOld {
		if err := w.tell(WatchEvent{Broken: err}); err != nil || !w.started {
			return
		}
	}
	clear(w.seen)
	w.started = false
	_ = w.tell(WatchEvent{Missed: true}) // the next stream learns of the end of the loop
}
