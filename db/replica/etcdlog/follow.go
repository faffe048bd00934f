package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/locket-service/locket/db/replica/order"
)

const (
	// page is how many records are read at once: at most 64 MiB.
	page = 64
	// quiet is how long a watch may be silent before etcd is asked whether it misses something.
	quiet = 500 * time.Millisecond
)

var (
	errStale     = errors.New("the watch misses changes")
	errGap       = errors.New("changes are missing")
	errNoStart   = errors.New("the watch does not start")
	errCompacted = errors.New("etcd was compacted")
)

// follower gives the changes of the log to one call of Follow.
type follower struct {
	*Log
	event func(order.Event) error

	at       atomic.Uint64 // the last record that was given
	epoch    uint64        // the last epoch that was given
	revision atomic.Int64  // of the last change that was given
	busy     atomic.Bool   // event is running
	started  atomic.Bool   // the watch
}

// Follow implements order.Log. It reads the records that are there, and then watches. After every failure of the watch it
// returns.
func (l *Log) Follow(ctx context.Context, after uint64, event func(order.Event) error) error {
	ctx, end := l.within(ctx)
	defer end()
	f := &follower{Log: l, event: event}
	f.at.Store(after)
	if err := f.read(ctx); err != nil {
		return err
	}
	return f.watch(ctx)
}

// read gives the epoch, and the records that are there: all as of one revision.
func (f *follower) read(ctx context.Context) error {
	after := f.at.Load()
	records := etcd.OpGet(f.record(after), etcd.WithRange(f.recordsEnd()), etcd.WithLimit(page))
	response, err := f.commit(ctx, nil, []etcd.Op{etcd.OpGet(f.Log.epoch()), records, etcd.OpGet(f.beat(), etcd.WithKeysOnly())}, nil)
	if err != nil {
		return err
	}
	pairs, revision := rangeOf(response, 1).GetKvs(), response.Header.GetRevision()
	first, err := f.continues(pairs, after)
	if err != nil {
		return err
	}
	epoch, err := f.decodeEpoch(valueOf(response))
	if err != nil {
		return err
	}
	f.epoch = epoch.Number
	if err := f.give(ctx, order.Event{Epoch: &epoch}); err != nil {
		return err
	}
	if f.sees(rangeOf(response, 2).GetKvs()) {
		if err := f.give(ctx, order.Event{}); err != nil {
			return err
		}
	}
	f.revision.Store(revision)
	return f.readPages(ctx, pairs, first+uint64(rangeOf(response, 1).GetCount())-1)
}

// readPages gives a page of records, and reads the pages after it up to a last record.
func (f *follower) readPages(ctx context.Context, pairs []*mvccpb.KeyValue, last uint64) error {
	for {
		if err := f.giveRecords(ctx, pairs); err != nil {
			return err
		}
		next := f.at.Load() + 1
		if next > last {
			return nil
		}
		// With an open range etcd would count the rest of the log for each page.
		response, err := f.get(ctx, f.record(next), etcd.WithRange(f.record(next+page)), etcd.WithRev(f.revision.Load()))
		if err != nil {
			return err
		}
		if pairs = response.Kvs; len(pairs) == 0 {
			return fmt.Errorf("%w: %w: record %d is missing", order.ErrUnavailable, errGap, next)
		}
	}
}

// continues returns the index of the first of the records from the one at an index on. It returns an error unless
// that record, or the next one, is the first.
func (k keys) continues(pairs []*mvccpb.KeyValue, after uint64) (first uint64, err error) {
	if len(pairs) == 0 {
		if after > 0 {
			return 0, order.ErrBehind // the last record is never trimmed
		}
		return 1, nil
	}
	first, err = k.index(string(pairs[0].GetKey()))
	if err == nil && first > after+1 {
		err = order.ErrTrimmed
	}
	return first, err
}

func (f *follower) giveRecords(ctx context.Context, pairs []*mvccpb.KeyValue) error {
	for _, pair := range pairs {
		if err := f.giveRecord(ctx, pair); err != nil {
			return err
		}
	}
	return nil
}

// giveRecord gives the next record, and ignores earlier ones.
func (f *follower) giveRecord(ctx context.Context, pair *mvccpb.KeyValue) error {
	key := string(pair.GetKey())
	index, err := f.index(key)
	if err != nil {
		return err
	}
	at := f.at.Load()
	if index <= at {
		return nil
	}
	if index != at+1 {
		return fmt.Errorf("%w: %w: record %d comes after record %d", order.ErrUnavailable, errGap, index, at)
	}
	data, err := decodeRecord(key, pair.GetValue())
	if err != nil {
		return err
	}
	f.at.Store(index)
	return f.give(ctx, order.Event{Index: index, Data: data})
}

func (f *follower) give(ctx context.Context, e order.Event) error {
	if ctx.Err() != nil {
		return lost(context.Cause(ctx))
	}
	f.busy.Store(true)
	defer f.busy.Store(false)
	return f.event(e)
}

func lost(err error) error { return fmt.Errorf("%w: %w", order.ErrUnavailable, err) }

// watch gives the changes after f.revision.
func (f *follower) watch(whole context.Context) error {
	ctx, cancel := context.WithCancelCause(whole)
	defer cancel(nil)
	go f.guard(ctx, cancel)
	at := f.current.Load()
	own := false // the error is one of event
	err := f.members[at].do(ctx, func(ctx context.Context) error {
		stream, err := f.members[at].watch.Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
		if err == nil {
			err = stream.Send(f.request())
		}
		for err == nil {
			var response *pb.WatchResponse
			if response, err = stream.Recv(); err == nil {
				err = f.take(ctx, response)
				own = err != nil && !errors.Is(err, order.ErrUnavailable)
			}
		}
		return err
	})
	switch cause := context.Cause(ctx); {
	case own:
		return err
	case cause != nil:
		err = cause
	}
	if whole.Err() == nil {
		f.use(at, (at+1)%int64(len(f.members)))
	}
	return lost(fmt.Errorf("etcd at %s: %w", f.members[at].endpoint, err))
}

func (f *follower) request() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(f.keys), RangeEnd: []byte(f.end()), StartRevision: f.revision.Load() + 1,
		Fragment: true, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE},
	}}}
}

// take gives the changes of one message.
func (f *follower) take(ctx context.Context, response *pb.WatchResponse) error {
	f.started.Store(true)
	switch {
	case response.GetCompactRevision() > 0:
		return lost(errCompacted)
	case response.GetCanceled():
		reason := response.GetCancelReason()
		if _, text, found := strings.Cut(reason, "desc = "); found {
			reason = text
		}
		return f.explain(rpctypes.Error(errors.New(reason)))
	}
	for _, e := range response.GetEvents() {
		if err := f.takeChange(ctx, e.GetKv()); err != nil {
			return err
		}
		f.revision.Store(e.GetKv().GetModRevision())
	}
	return nil
}

func (f *follower) takeChange(ctx context.Context, pair *mvccpb.KeyValue) error {
	switch key := string(pair.GetKey()); {
	case strings.HasPrefix(key, f.records()):
		return f.giveRecord(ctx, pair)
	case key == f.beat():
		f.sees([]*mvccpb.KeyValue{pair})
		return f.give(ctx, order.Event{})
	case key == f.Log.epoch():
		epoch, err := f.decodeEpoch(append([]byte{}, pair.GetValue()...))
		if err != nil {
			return err
		}
		if epoch.Number != f.epoch+1 {
			return fmt.Errorf("%w: %w: epoch %d comes after epoch %d", order.ErrUnavailable, errGap, epoch.Number, f.epoch)
		}
		f.epoch = epoch.Number
		return f.give(ctx, order.Event{Epoch: &epoch})
	default:
		return nil
	}
}

// guard ends a watch that is silent although the log has changed: its member may be paused or cut off, and neither gRPC
// nor TCP notices that within seconds.
func (f *follower) guard(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	var seen, missing int64
	for ticks := 0; ; ticks++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := f.revision.Load()
		switch {
		case ticks >= 2 && !f.started.Load():
			cancel(errNoStart)
		case f.busy.Load(), now != seen:
			seen, missing = now, 0
		case now < missing:
			cancel(errStale)
		default:
			missing, _ = f.newest(ctx)
		}
	}
}

// newest returns the revision of the newest change.
func (f *follower) newest(ctx context.Context) (revision int64, err error) {
	next := f.record(f.at.Load() + 1)
	response, err := f.commit(ctx, nil, []etcd.Op{
		etcd.OpGet(f.Log.epoch(), etcd.WithKeysOnly()), etcd.OpGet(f.beat(), etcd.WithKeysOnly()), etcd.OpGet(next, etcd.WithKeysOnly()),
	}, nil)
	if err != nil {
		return 0, err
	}
	for i := range response.Responses {
		for _, pair := range rangeOf(response, i).GetKvs() {
			revision = max(revision, pair.GetModRevision())
		}
	}
	return revision, nil
}
