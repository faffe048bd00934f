package etcdlog

import (
	"cmp"
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
	// firstTry is how long an attempt at one member may take. It doubles from round to round up to lastTry: large records
	// take long on slow networks.
	firstTry = 500 * time.Millisecond
	lastTry  = 8 * time.Second
	// rest is the time between two rounds.
	rest = 20 * time.Millisecond
)

// ask makes a request of one member after another until one of them answers, or the context ends. Any answer settles the
// request. So it must be harmless to carry it out twice, and late.
func ask[T any](ctx context.Context, l *Log, request func(context.Context, *member) (T, error)) (answer T, err error) {
	ctx, end := l.within(ctx)
	defer end()
	for try := firstTry; ; try = min(2*try, lastTry) {
		answer, err = round(ctx, l, try, request)
		if err == nil {
			return answer, nil
		}
		if isFinal(err) {
			return answer, l.explain(err)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return answer, fmt.Errorf("%w: %w (%w)", order.ErrUnavailable, context.Cause(ctx), err)
		}
	}
}

type outcome[T any] struct {
	answer T
	err    error
	member int64
}

// round asks each member once. It begins with the current one.
func round[T any](ctx context.Context, l *Log, try time.Duration, request func(context.Context, *member) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := int64(len(l.members))
	outcomes := make(chan outcome[T], all)
	first := l.current.Load()
	for asked, pending := int64(0), 0; asked < all || pending > 0; {
		var next <-chan time.Time
		if asked < all {
			at := (first + asked) % all
			asked, pending, next = asked+1, pending+1, time.After(hedge)
			go attempt(ctx, try, l.members[at], at, request, outcomes)
		}
		select {
		case o := <-outcomes:
			pending--
			answer, err = o.answer, o.err
			if err == nil {
				l.use(first, o.member)
			}
			if err == nil || isFinal(err) {
				return answer, err
			}
		case <-next:
		case <-ctx.Done():
			return answer, cmp.Or(err, ctx.Err())
		}
	}
	return answer, err
}

func attempt[T any](ctx context.Context, try time.Duration, m *member, at int64, request func(context.Context, *member) (T, error), to chan<- outcome[T]) {
	ctx, cancel := context.WithTimeout(ctx, try)
	defer cancel()
	o := outcome[T]{member: at}
	o.err = m.do(ctx, func(ctx context.Context) (err error) {
		o.answer, err = request(ctx, m)
		return err
	})
	if o.err != nil {
		o.err = fmt.Errorf("etcd at %s: %w", m.endpoint, o.err)
	}
	to <- o
}

// use makes another member the current one.
func (l *Log) use(before, now int64) {
	if before != now && l.current.CompareAndSwap(before, now) {
		l.log.Info("another member of etcd is used", "before", l.members[before].endpoint, "now", l.members[now].endpoint)
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
	rpctypes.ErrUserNotFound, rpctypes.ErrCompacted, rpctypes.ErrCorrupt, rpctypes.ErrTooManyOps,
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
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w; compact and defragment etcd, then: etcdctl alarm disarm", order.ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", order.ErrUnavailable, err)
	}
}
