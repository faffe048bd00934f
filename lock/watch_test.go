package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// TestWatch: Watch reports each change once, even if the stream breaks in the middle of changes that belong together.
// It reports breaks, missed changes, and the servers' refusal. A loop that has ended gets nothing more.
func TestWatch(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.dial()
		request := &models.WatchRequest{Prefix: "a"}
		watch := func(until string) (*diary, <-chan struct{}) {
			told, done := new(diary), make(chan struct{})
			go func() {
				defer close(done)
				for e, err := range lock.Watch(t.Context(), client, request) {
					told.note("%s", lineOf(e, err))
					if e.Cursor == until {
						return
					}
				}
			}()
			return told, done
		}
		serve := func(cursor string, messages ...any) {
			t.Helper()
			stream := s.NextWatch(cursor)
			for _, m := range messages {
				stream.Out <- m
				synctest.Wait()
			}
		}
		broken := status.Error(codes.Unavailable, "broken")
		told, done := watch("never")
		serve("", &models.WatchResponse{Snapshot: []*models.Claim{live("1", "v1", 5)}}, &models.WatchResponse{Cursor: "c1", Synced: true}, changes("", live("1", "v2", 6)), broken)
		serve("c1", changes("", live("1", "v2", 6)), changes("c2", live("2", "", 7), over("1", 8)), &models.WatchResponse{Cursor: "c3"}, broken)
		serve("c3", reason(codes.OutOfRange, models.ReasonCursorTooOld))
		serve("", &models.WatchResponse{Cursor: "c4", Synced: true}, status.Error(codes.PermissionDenied, "no"))
		<-done
		told.says(t, "live 1, synced c1, change 1 6, broken, change 2 7, change 1 8 c2, c3, broken, missed, synced c4, denied")
		if request.GetCursor() != "" {
			t.Errorf("the request was changed: %v", request)
		}

		told, done = watch("c6") // the snapshot is interrupted
		serve("", &models.WatchResponse{Snapshot: []*models.Claim{live("1", "v1", 5), live("2", "", 6)}}, changes("", live("1", "v2", 7)), broken)
		serve("", &models.WatchResponse{Snapshot: []*models.Claim{live("1", "v2", 7)}}, changes("", live("1", "v3", 8)), &models.WatchResponse{Cursor: "c6", Synced: true})
		<-done
		told.says(t, "live 1, live 2, change 1 7, broken, missed, live 1, change 1 8, synced c6")

		told, done = watch("c5")
		serve("", changes("c5", over("1", 9)))
		<-done
		told.says(t, "change 1 9 c5")
	})
}

// lineOf returns an event of Watch as a short text.
func lineOf(e lock.WatchEvent, err error) string {
	cursor := ""
	if e.Cursor != "" {
		cursor = " " + e.Cursor
	}
	switch {
	case status.Code(err) == codes.PermissionDenied:
		return "denied"
	case err != nil:
		return err.Error()
	case e.Claim != nil:
		return "live " + e.Claim.GetId() + cursor
	case e.Transition != nil:
		return fmt.Sprintf("change %s %d%s", e.Transition.GetClaim().GetId(), e.Transition.GetClaim().GetVersion(), cursor)
	case e.Missed:
		return "missed"
	case e.Broken != nil:
		return "broken"
	case e.Synced:
		return "synced" + cursor
	default:
		return e.Cursor
	}
}

// TestWatchEnds: Watch ends with its context.
func TestWatchEnds(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var last error
		for _, err := range lock.Watch(ctx, s.dial(), &models.WatchRequest{}) {
			last = err
		}
		if last != context.DeadlineExceeded { //nolint:errorlint // this very error
			t.Errorf("it ended with %v", last)
		}
	})
	scripted(t, func(t *testing.T, s *script) { // the server sees the deadline first
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { s.NextWatch("").Out <- status.Error(codes.DeadlineExceeded, "the time is over") }()
		var last error
		for _, err := range lock.Watch(ctx, s.dial(), &models.WatchRequest{}) {
			last = err
		}
		if last != context.DeadlineExceeded { //nolint:errorlint // this very error
			t.Errorf("it ended with %v", last)
		}
	})
}

// again is a client with feeds that deliver a message and break, whether or not anybody waits.
type again struct {
	models.LocketClient
	grpc.ClientStream
	came bool
}

func (a *again) Watch(context.Context, *models.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	return a, nil
}

func (a *again) Recv() (*models.WatchResponse, error) {
	if a.came = !a.came; !a.came {
		return nil, status.Error(codes.Unavailable, "broken")
	}
	return &models.WatchResponse{Cursor: "c", Synced: true}, nil
}

// TestWatchLeftAtBreak: a loop that ends when a stream has broken gets nothing more.
func TestWatchLeftAtBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for e := range lock.Watch(t.Context(), new(again), &models.WatchRequest{}) {
			if e.Broken != nil {
				break
			}
		}
	})
}

// TestClosedConnection: a Watch, and a runner that holds nothing, end when their connection is closed.
func TestClosedConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		opened, err := lock.Dial(anyAddress, w.Option())
		must(t, err)
		client := models.NewLocketClient(opened)
		holder := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry))
		waiter := ifrit.Background(lock.NewLockRunner(client, resource("k", ""), ttl, retry))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		watched := make(chan error, 1)
		go func() {
			var last error
			for _, err := range lock.Watch(ctx, client, &models.WatchRequest{}) {
				last = err
			}
			watched <- last
		}()
		time.Sleep(time.Second)
		must(t, opened.Close())
		if err := <-watched; !errors.Is(err, conn.ErrClosed) {
			t.Errorf("the watch: %v", err)
		}
		time.Sleep(2 * retry)
		if gone, err := exited(waiter); !gone || !errors.Is(err, conn.ErrClosed) {
			t.Errorf("the runner that waits: %t, %v", gone, err)
		}
		waiter.Signal(os.Interrupt)
		must(t, end(holder))
	})
}

// TestLostPresenceOfClosedConnection: a presence that was lost is announced again, until its connection or its client
// is closed.
func TestLostPresenceOfClosedConnection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		opened, err := lock.Dial(anyAddress, w.Option())
		must(t, err)
		client := w.client()
		byCalls := ifrit.Invoke(lock.NewPresenceRunner(models.NewLocketClient(opened), resource("p", ""), ttl, retry))
		bySession := ifrit.Invoke(lock.NewSessionPresenceRunner(client, "q", "here"))
		w.stop()
		time.Sleep(3 * ttl)
		for name, p := range map[string]ifrit.Process{"by calls": byCalls, "by a session": bySession} {
			if gone, err := exited(p); gone {
				t.Fatalf("%s: it has ended: %v", name, err)
			}
		}
		must(t, errors.Join(opened.Close(), client.Close()))
		time.Sleep(2 * ttl)
		if gone, err := exited(byCalls); !gone || !errors.Is(err, conn.ErrClosed) {
			t.Errorf("by calls: %t, %v", gone, err)
		}
		if gone, err := exited(bySession); !gone || !errors.Is(err, lock.ErrClosed) {
			t.Errorf("by a session: %t, %v", gone, err)
		}
		byCalls.Signal(os.Interrupt)
		bySession.Signal(os.Interrupt)
	})
}
