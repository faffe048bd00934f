package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/order"
)

const (
	// hedge is how long one member may take before the next one is asked, too.
	hedge = 150 * time.Millisecond
	// again is how long a member may take before it is asked again: a proposal that is under way when etcd's leader fails may vanish
	// without an error.
	again = 300 * time.Millisecond
	// longest is the longest time between two attempts.
	longest = 2400 * time.Millisecond
	// rest is the time between a failure and the next attempt, when each member has been asked.
	rest = 20 * time.Millisecond
)

// ask makes a request of one member after another until one of them answers, or the context ends. Any answer settles the
// request. So it must be harmless to carry it out twice, and late.
//
// An attempt goes on while others begin: where etcd is slow the first one has the first answer. It ends by itself: etcd gives up
// after 7 s, and gRPC after 12.
func ask[T any](ctx context.Context, l *Log, request func(context.Context, *member) (T, error)) (none T, err error) {
	ctx, end := l.within(ctx)
	defer end()
	a := &asking[T]{Log: l, request: request, began: time.Now(), asked: make([]time.Time, len(l.members)), outcomes: make(chan outcome[T])}
	defer func() { l.took(time.Since(a.began)) }()
	a.first = l.current.Load()
	a.next = a.first
	failure := errNoAnswer
	for ctx.Err() == nil {
		a.begin(ctx)
		select {
		case o := <-a.outcomes:
			a.asked[o.member] = time.Time{}
			switch {
			case o.err == nil:
				l.use(a.first, o.member)
				return o.answer, nil
			case isFinal(o.err):
				return o.answer, l.explain(o.err)
			case !errors.Is(o.err, context.DeadlineExceeded): // which says little
				failure = o.err
			}
			a.rest(ctx)
		case <-time.After(a.hedge()):
		case <-ctx.Done():
		}
	}
	return none, fmt.Errorf("%w: %w (%w)", order.ErrUnavailable, context.Cause(ctx), failure)
}

var errNoAnswer = errors.New("no member of etcd has answered")

// asking is a request under way.
type asking[T any] struct {
	*Log
	request  func(context.Context, *member) (T, error)
	began    time.Time
	outcomes chan outcome[T]
	asked    []time.Time // when each member was asked that has not answered since
	first    int64       // the member that was asked first
	next     int64       // the member that is asked next unless it may still answer
	attempts int
}

type outcome[T any] struct {
	answer T
	err    error
	member int64
}

// begin begins an attempt at the next member, unless all may still answer.
func (a *asking[T]) begin(ctx context.Context) {
	all := int64(len(a.members))
	for n := range all {
		at := (a.next + n) % all
		if time.Since(a.asked[at]) < a.patience() {
			continue
		}
		a.asked[at] = time.Now()
		a.attempts++
		a.next = (at + 1) % all
		go attempt(ctx, a.members[at], at, a.request, a.outcomes)
		return
	}
}

// hedge returns for how long nothing may be answered until the next member is asked, too.
func (a *asking[T]) hedge() time.Duration { return min(max(hedge, a.slow()), again) }

// patience returns how long a member may take before it is asked again.
func (a *asking[T]) patience() time.Duration {
	return min(max(again, a.slow(), time.Since(a.began)/4), longest)
}

// slow returns twice the time that requests have taken lately. Each attempt makes a slow etcd slower.
func (a *asking[T]) slow() time.Duration { return 2 * time.Duration(a.lately.Load()) }

// took notes how long a request has taken. It counts for some more requests.
func (l *Log) took(d time.Duration) {
	l.lately.Store(max(int64(min(d, longest)), l.lately.Load()/4*3))
}

// rest waits for a moment when each member has been asked.
func (a *asking[T]) rest(ctx context.Context) {
	if a.attempts < len(a.members) {
		return
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
	}
}

func attempt[T any](ctx context.Context, m *member, at int64, request func(context.Context, *member) (T, error), to chan<- outcome[T]) {
	o := outcome[T]{member: at}
	o.err = m.do(ctx, func(ctx context.Context) (err error) {
		o.answer, err = request(ctx, m)
		return err
	})
	if o.err != nil {
		o.err = fmt.Errorf("etcd at %s: %w", m.endpoint, o.err)
	}
	select {
	case to <- o:
	case <-ctx.Done(): // nobody waits for it
	}
}

// use makes another member the current one after the one before has failed. The failure may have given etcd another leader.
func (l *Log) use(before, now int64) {
	if l.change(before, now) {
		go l.useLeader(before, now)
	}
}

// change makes another member the current one, unless somebody has done so meanwhile.
func (l *Log) change(before, now int64) (changed bool) {
	changed = before != now && l.current.CompareAndSwap(before, now)
	if changed {
		l.log.Info("another member of etcd is used", "before", l.members[before].endpoint, "now", l.members[now].endpoint)
	}
	return changed
}

// useLeader makes etcd's leader the current member, unless it is the member that has just failed. Followers pass requests on to
// the leader, which takes longer.
func (l *Log) useLeader(failed, now int64) {
	ctx, end := l.within(context.Background())
	defer end()
	if leader, err := l.checkMembers(ctx, &Report{}); err == nil && leader != failed {
		l.change(now, leader)
	}
}

// get reads a key or a range, linearizably.
func (l *Log) get(ctx context.Context, key string, options ...etcd.OpOption) (*etcd.GetResponse, error) {
	return ask(ctx, l, func(ctx context.Context, m *member) (*etcd.GetResponse, error) {
		return m.client.Get(ctx, key, options...)
	})
}

// commit carries out a transaction.
func (l *Log) commit(ctx context.Context, compare []etcd.Cmp, then, otherwise []etcd.Op) (*etcd.TxnResponse, error) {
	return ask(ctx, l, func(ctx context.Context, m *member) (*etcd.TxnResponse, error) {
		return m.client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
	})
}

// finals are the errors that another attempt would get, too, until somebody does something about them.
var finals = []error{
	rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed,
	errNoUser, rpctypes.ErrUserNotFound, rpctypes.ErrCompacted, rpctypes.ErrCorrupt, rpctypes.ErrTooManyOps,
}

func isFinal(err error) bool {
	for _, final := range finals {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// needsToken reports whether an error says that the token is missing or no longer valid.
func needsToken(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// explain adds a remedy to a final error.
func (l *Log) explain(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w; raise etcd's --max-request-bytes to its default, 1572864, or above", order.ErrTooLarge, err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: %w; the user %q needs the right to read and write all keys below %q: etcdctl role grant-permission ROLE --prefix readwrite %s",
			order.ErrUnavailable, err, l.user, l.keys, l.keys)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%w: %w; check --etcd-user and --etcd-password-file", order.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w; compact and defragment etcd, then: etcdctl alarm disarm", order.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", order.ErrUnavailable, err)
	}
}
