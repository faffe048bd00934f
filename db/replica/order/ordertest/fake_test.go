package ordertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/order/ordertest"
)

func TestContract(t *testing.T) {
	ordertest.Run(t, func(*testing.T) func() order.Log {
		shared := ordertest.New()
		return func() order.Log { return shared.Open() }
	})
}

var errFault = errors.New("fault")

func at(op string, err error) func(string) error {
	return func(now string) error {
		if now == op {
			return err
		}
		return nil
	}
}

func raised(t *testing.T) (*ordertest.Shared, *ordertest.Server) {
	t.Helper()
	shared := ordertest.New()
	log := shared.Open()
	if err := log.Raise(t.Context(), 0, 0, []byte("a")); err != nil {
		t.Fatal(err)
	}
	return shared, log
}

// A fault before a commit leaves nothing behind; one after it loses the answer.
func TestFaults(t *testing.T) {
	shared, log := raised(t)
	log.Fail(at("append", errFault), nil)
	if err := log.Append(t.Context(), 1, 1, nil); !errors.Is(err, errFault) || !errors.Is(err, order.ErrUnavailable) {
		t.Errorf("with a fault before: %v", err)
	}
	if _, records := shared.Records(); len(records) != 0 {
		t.Error("a fault before the commit did not prevent it")
	}
	log.Fail(nil, at("append", errFault))
	if err := log.Append(t.Context(), 1, 1, nil); !errors.Is(err, errFault) {
		t.Errorf("with a fault after: %v", err)
	}
	if _, records := shared.Records(); len(records) != 1 {
		t.Error("a fault after the commit prevented it")
	}
}

// A late commit happens after its call has failed, unless the epoch has been raised.
func TestLate(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shared, log := raised(t)
			log.Fail(at("append", ordertest.Late(time.Second)), nil)
			if err := log.Append(t.Context(), 1, 1, nil); !errors.Is(err, order.ErrUnavailable) {
				t.Error(err)
			}
			want := 1
			if deposed {
				if err := shared.Open().Raise(t.Context(), 1, 0, nil); err != nil {
					t.Error(err)
				}
				want = 0
			}
			time.Sleep(2 * time.Second)
			if _, records := shared.Records(); len(records) != want {
				t.Errorf("deposed %t: the log has %d records, want %d", deposed, len(records), want)
			}
		})
	}
}

// A paused server commits nothing and gets no events until it is resumed.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, log := raised(t)
		other := shared.Open()
		var events []order.Event
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = other.Follow(ctx, 0, func(e order.Event) error { events = append(events, e); return nil })
		}()
		synctest.Wait()
		other.Pause()
		if err := log.Append(ctx, 1, 1, nil); err != nil {
			t.Error(err)
		}
		brief, end := context.WithTimeout(ctx, time.Second)
		if _, err := other.Last(brief, 0); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, order.ErrUnavailable) {
			t.Errorf("last in a pause: %v", err)
		}
		end()
		synctest.Wait()
		if len(events) != 1 {
			t.Errorf("%d events came in the pause, want none behind the first", len(events)-1)
		}
		other.Resume()
		synctest.Wait()
		if len(events) != 2 || events[1].Index != 1 {
			t.Errorf("after the pause the events are %v", events)
		}
		cancel()
		synctest.Wait()
	})
}

// A Follow that is cut, that lags behind a trim, or whose log is taken back, ends.
func TestFollowLost(t *testing.T) {
	for name, lose := range map[string]func(*ordertest.Shared, *ordertest.Server, *ordertest.Server, func()){
		"cut":     func(_ *ordertest.Shared, _, other *ordertest.Server, _ func()) { other.Cut() },
		"restore": func(_ *ordertest.Shared, _, _ *ordertest.Server, restore func()) { restore() },
		"lag": func(_ *ordertest.Shared, log, other *ordertest.Server, _ func()) {
			other.Pause()
			for i := range uint64(3) {
				_ = log.Append(context.Background(), 1, i+1, nil)
			}
			synctest.Wait() // the paused Follow has them
			_ = log.Append(context.Background(), 1, 4, nil)
			_ = log.Append(context.Background(), 1, 5, nil)
			_ = log.Trim(context.Background(), 4)
			other.Resume()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			shared, log := raised(t)
			other, restore := shared.Open(), shared.Backup()
			ended := make(chan error, 1)
			go func() { ended <- other.Follow(t.Context(), 0, func(order.Event) error { return nil }) }()
			synctest.Wait()
			lose(shared, log, other, restore)
			if err := <-ended; !errors.Is(err, order.ErrUnavailable) {
				t.Errorf("%s: follow ended with %v", name, err)
			}
		})
	}
}

// A log that is taken back to an older state is behind the servers that have the records after it.
func TestRestore(t *testing.T) {
	shared, log := raised(t)
	restore := shared.Backup()
	if err := log.Append(t.Context(), 1, 1, nil); err != nil {
		t.Fatal(err)
	}
	restore()
	if _, err := log.Last(t.Context(), 1); !errors.Is(err, order.ErrBehind) {
		t.Errorf("last: %v", err)
	}
	if err := log.Append(t.Context(), 1, 2, nil); !errors.Is(err, order.ErrBehind) {
		t.Errorf("append: %v", err)
	}
}
