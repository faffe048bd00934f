package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/lease"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// reason returns an error as the server sends it.
func reason(code codes.Code, reason string) error {
	st, _ := status.New(code, "told so").WithDetails(&errdetails.ErrorInfo{Domain: models.ErrorDomain, Reason: reason})
	return st.Err()
}

// lockAsync sends a LOCK, and returns its request and what gets its answer.
func lockAsync(session *lock.Session, st *scriptStream, key string) (*models.SessionRequest, <-chan error) {
	answered := make(chan error, 1)
	go func() {
		_, err := session.Lock(context.Background(), key)
		answered <- err
	}()
	return st.next(), answered
}

// closing closes a session whose stream is up.
func closing(t *testing.T, session *lock.Session, st *scriptStream) {
	t.Helper()
	go st.serve()
	must(t, session.Close(t.Context()))
}

// TestSessionResumes: when its stream breaks, a session resumes with its secret, sends again what has no answer, in the
// same order, and takes what the server says to be held for what is held.
func TestSessionResumes(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var heard diary
		session.Listen(lines(&heard))
		st := s.attach()
		for key, token := range map[string]uint64{"a": 1, "b": 2, "c": 3} {
			asked, answered := lockAsync(session, st, key)
			st.answer(asked.GetSequence(), holds(key, token, token))
			must(t, <-answered)
		}
		first, answered1 := lockAsync(session, st, "d")
		second, answered2 := lockAsync(session, st, "e")
		synctest.Wait()
		heard.lines = nil
		opened := st.open
		st.end <- status.Error(codes.Unavailable, "shutting down")

		st = s.accept()
		if !st.open.GetResume() || st.open.GetId() != opened.GetId() || st.open.GetSecret() != opened.GetSecret() {
			t.Errorf("it opens %v, after %v", st.open, opened)
		}
		st.answer(st.seq, holds("a", 1, 1))
		st.answer(st.seq, holds("b", 20, 20)) // it was lost, and locked again by what has no answer
		st.send(&models.SessionResponse{Sequence: st.seq, Event: &models.SessionResponse_Opened{Opened: &models.SessionOpened{Resumed: true}}})
		synctest.Wait()
		heard.says(t, "b HOLDING-NONE lost, b NONE-HOLDING, c HOLDING-NONE lost")
		for i, want := range []*models.SessionRequest{first, second} {
			if got := st.next(); got.GetLock().GetResource() != want.GetLock().GetResource() {
				t.Errorf("request %d after the resumption is %v, not %v", i, got, want)
			} else {
				st.answer(got.GetSequence(), holds(got.GetLock().GetResource(), 30, 30))
			}
		}
		must(t, errors.Join(<-answered1, <-answered2))
		closing(t, session, st)
		if err := session.Err(); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSessionSilentServer: a server that does not answer a heartbeat in time is left for another, long before the
// trust window ends.
func TestSessionSilentServer(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(ttl))
		st := s.attach()
		asked, answered := lockAsync(session, st, "k")
		begun := time.Now()
		st.answer(asked.GetSequence(), holds("k", 1, 1))
		must(t, <-answered)
		next := s.attach(holds("k", 1, 1)) // the first one answers no further heartbeat
		if took := time.Since(begun); took > ttl*7/10 {
			t.Errorf("it took %v until it tried another one", took)
		}
		next.beat(next.raw())
		time.Sleep(ttl / 4)
		if got := session.Status("k"); got.Current != lock.Holding || got.Token != 1 {
			t.Errorf("%+v", got)
		}
		closing(t, session, next)
	})
}

// TestSessionResigns: without an acknowledged heartbeat the session resigns when its trust window ends, which is before
// any server could give away what it held; a heartbeat that is acknowledged late changes nothing.
func TestSessionResigns(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(ttl))
		lost := make(chan time.Time, 1)
		session.Listen(func(s lock.Status) {
			if s.Current == lock.None {
				lost <- time.Now()
			}
		})
		st := s.attach()
		sent := time.Now()
		asked, answered := lockAsync(session, st, "k")
		st.answer(asked.GetSequence(), holds("k", 1, 1))
		must(t, <-answered)
		waiting, unanswered := lockAsync(session, st, "other")
		// Further streams get no answer.
		select {
		case at := <-lost:
			if want := sent.Add(ttl - lease.Margin(ttl)); at.Before(want) || at.After(want.Add(time.Millisecond)) {
				t.Errorf("it resigned %v after the last heartbeat", at.Sub(sent))
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not resign")
		}
		if err := session.Err(); !errors.Is(err, lock.ErrTimeUp) {
			t.Error(err)
		}
		if err := <-unanswered; !errors.Is(err, lock.ErrTimeUp) {
			t.Errorf("%v: %v", waiting, err)
		}
		<-session.Done()
		must(t, session.Close(t.Context()))
	})
}

// TestSessionStaysDone: a session whose window has ended in a pause between two attempts, as while its process was stopped, opens no
// further stream, though no timer has run yet.
func TestSessionStaysDone(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient([]string{"127.0.0.1:1"}, s.dialer(), lock.WithTTL(ttl))
		must(t, err)
		go func() {
			st := s.attach()
			asked := st.next()
			st.answer(asked.GetSequence(), holds("k", 1, 1))
			st.end <- status.Error(codes.Unavailable, "shutting down")
		}()
		begun := time.Now()
		held, err := client.Acquire(t.Context(), "k")
		must(t, err)
		lock.StopClock(held)
		for over := false; !over; {
			select {
			case st := <-s.streams:
				if err := held.Err(); err != nil {
					t.Errorf("after %v, with %v, it opens a stream", time.Since(begun), err)
				}
				st.end <- status.Error(codes.Unavailable, "shutting down")
			case <-time.After(ttl):
				over = true
			}
		}
		if err := held.Err(); !errors.Is(err, lock.ErrTimeUp) {
			t.Error(err)
		}
		_ = client.Close()
	})
}

// TestSessionOpening: what the errors of a stream lead to before the session is open, and after.
func TestSessionOpening(t *testing.T) {
	t.Run("an attempt was carried out and forgotten", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			st := s.accept()
			st.end <- reason(codes.NotFound, models.ReasonSessionEnded)
			next := s.attach()
			if next.open.GetId() == st.open.GetId() || next.open.GetResume() {
				t.Errorf("it opens %v after %v", next.open, st.open)
			}
			closing(t, session, next)
		})
	})
	t.Run("refused", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			s.accept().end <- status.Error(codes.PermissionDenied, "not you")
			_, err := session.Lock(t.Context(), "k")
			if status.Code(err) != codes.PermissionDenied || session.Err() == nil {
				t.Errorf("%v, %v", err, session.Err())
			}
		})
	})
	t.Run("the server is not there yet", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			for range 5 {
				s.accept().end <- status.Error(codes.Unavailable, "starting")
			}
			closing(t, session, s.attach())
		})
	})
	t.Run("ended", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			s.attach().end <- reason(codes.NotFound, models.ReasonSessionEnded)
			<-session.Done()
			if err := session.Err(); !errors.Is(err, lock.ErrSessionEnded) {
				t.Error(err)
			}
		})
	})
	t.Run("moved by a late request of its own", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			s.attach().end <- reason(codes.Aborted, models.ReasonSessionMoved)
			st := s.attach()
			if !st.open.GetResume() {
				t.Error("it does not resume")
			}
			closing(t, session, st)
		})
	})
	t.Run("denied while it holds", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			st := s.attach()
			asked, answered := lockAsync(session, st, "k")
			st.answer(asked.GetSequence(), holds("k", 1, 1))
			must(t, <-answered)
			st.end <- status.Error(codes.PermissionDenied, "the rules have changed")
			s.accept().end <- status.Error(codes.PermissionDenied, "the rules have changed")
			st = s.attach(holds("k", 1, 1))
			if got := session.Status("k"); got.Current != lock.Holding {
				t.Errorf("%+v", got)
			}
			closing(t, session, st)
		})
	})
}

// TestSessionTrustsHeartbeatsOnly: nothing is asked for before the first heartbeat was acknowledged, since nothing could be
// relied on.
func TestSessionTrustsHeartbeatsOnly(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		st := s.attach()
		answered := make(chan error, 1)
		go func() {
			_, err := session.Lock(t.Context(), "k")
			answered <- err
		}()
		beat := st.raw()
		time.Sleep(200 * time.Millisecond)
		if beat.GetHeartbeat() == nil || len(st.in) > 0 {
			t.Errorf("%v, and %d requests after it", beat, len(st.in))
		}
		st.beat(beat)
		asked := st.next()
		st.answer(asked.GetSequence(), holds("k", 1, 1))
		must(t, <-answered)
		closing(t, session, st)
	})
}

// TestReleaseIsExact: a release names the grant, so that it can end no other; it returns when the server has answered,
// and to release again asks for nothing.
func TestReleaseIsExact(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient([]string{"127.0.0.1:1"}, s.dialer())
		must(t, err)
		acquired := make(chan *lock.Hold, 1)
		go func() {
			held, err := client.Acquire(context.Background(), "k")
			must(t, err)
			acquired <- held
		}()
		st := s.attach()
		st.answer(st.next().GetSequence(), holds("k", 5, 5))
		held := <-acquired
		released := make(chan error, 2)
		for range 2 {
			go func() { released <- held.Release(context.Background()) }()
		}
		asked := st.next()
		if asked.GetUnlock().Token == nil || asked.GetUnlock().GetToken() != 5 {
			t.Errorf("it asks %v", asked)
		}
		time.Sleep(time.Second)
		if len(released) > 0 {
			t.Error("released before the server knows")
		}
		st.answer(asked.GetSequence(), ended("k", 5, 6, models.Status_STATUS_RELEASED))
		must(t, errors.Join(<-released, <-released))
		synctest.Wait()
		for len(st.in) > 0 {
			if m := <-st.in; m.GetHeartbeat() == nil {
				t.Errorf("it asks for more: %v", m)
			}
		}
		go st.serve()
		must(t, client.Close())
	})
}

// TestSessionRunnerRefused: the error of a runner whose session is refused names the lock once.
func TestSessionRunnerRefused(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient([]string{"127.0.0.1:1"}, s.dialer())
		must(t, err)
		p := ifrit.Background(lock.NewSessionRunner(client, "k"))
		s.accept().end <- status.Error(codes.PermissionDenied, "not you")
		if err := <-p.Wait(); status.Code(err) != codes.PermissionDenied || strings.Count(err.Error(), `lock "k"`) != 1 {
			t.Error(err)
		}
		must(t, client.Close())
		if err := <-ifrit.Background(lock.NewSessionRunner(client, "k")).Wait(); !errors.Is(err, lock.ErrClosed) || strings.Count(err.Error(), `lock "k"`) != 1 {
			t.Error(err)
		}
	})
}

// TestSessionRunnersInDoubt: a runner that takes over within a session while no heartbeat is acknowledged is told so, as those
// that hold already.
func TestSessionRunnersInDoubt(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient([]string{"127.0.0.1:1"}, s.dialer(), lock.WithTTL(ttl))
		must(t, err)
		var first, second diary
		p := ifrit.Background(lock.NewSessionRunner(client, "k", first.callbacks()))
		st := s.attach()
		asked := st.next()
		q := ifrit.Background(lock.NewSessionRunner(client, "k", second.callbacks()))
		synctest.Wait()
		st.answer(asked.GetSequence(), holds("k", 1, 1)) // for both
		<-p.Ready()
		time.Sleep(ttl * 7 / 10) // without an answer to a heartbeat
		synctest.Wait()
		first.says(t, "acquired, unverifiable")
		must(t, end(p))
		<-q.Ready()
		for len(s.streams) > 1 {
			s.accept()
		}
		st = s.attach(holds("k", 1, 1))
		st.beat(st.raw())
		synctest.Wait()
		second.says(t, "acquired, unverifiable, verified")
		go st.serve()
		must(t, client.Close())
		<-q.Wait()
	})
}
