package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/internal/base/lease"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// script is a scripted server, and makes its clients.
type script struct {
	clients
	*locktest.Script
	claims sync.Map // by id: the functions that answer GetClaim
	// queue answers GetQueue; nil: no answer.
	queue func(ctx context.Context) (*models.Queue, error)
}

// scripted runs a test with a fake clock and a scripted server. At the end the server lets the open sessions close.
func scripted(t *testing.T, test func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(3 * time.Minute) }) // for clients' background work
		listener := locktest.Listen()
		s := &script{clients: clients{locktest.Over(listener), t}}
		s.Script, _ = locktest.Serve(t, listener, s.answer, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
		test(t, s)
		s.Finish()
	})
}

func (s *script) answer(ctx context.Context, method string, request any) (any, error) {
	if _, is := request.(*models.GetQueueRequest); is && s.queue != nil {
		return s.queue(ctx)
	}
	get, is := request.(*models.GetClaimRequest)
	if !is {
		return nil, status.Error(codes.Unimplemented, method)
	}
	if answer, known := s.claims.Load(get.GetId()); known {
		return answer.(func() (*models.Claim, error))()
	}
	return nil, status.Error(codes.NotFound, "no such claim")
}

// lines returns a listener that notes each change.
func lines(d *diary) func(lock.Status) {
	return func(s lock.Status) {
		text := fmt.Sprintf("%s %s-%s", s.Resource, s.Previous, s.Current)
		if errors.Is(s.Cause, lock.ErrLost) {
			text += " lost"
		}
		d.note("%s", text)
	}
}

// reason returns an error as the server sends it.
func reason(code codes.Code, reason string) error {
	st, _ := status.New(code, "told so").WithDetails(&errdetails.ErrorInfo{Domain: models.ErrorDomain, Reason: reason})
	return st.Err()
}

// lockAsync locks in another goroutine. It returns the request, and a channel for the result.
func lockAsync(session *lock.Session, st *locktest.Stream, key string) (*models.SessionRequest, <-chan error) {
	answered := harness.Later(func() error { return second(session.Lock(context.Background(), key)) })
	return st.Next(), answered
}

// locks makes a session hold a resource.
func locks(t *testing.T, session *lock.Session, st *locktest.Stream, key string, token uint64) {
	t.Helper()
	asked, answered := lockAsync(session, st, key)
	st.Answer(asked, locktest.Holds(key, token, token))
	must(t, <-answered)
}

// TestSessionResumes: when its stream breaks, a session resumes with its secret. It sends unanswered commands again,
// in the same order. It holds the locks that the server reports as held.
func TestSessionResumes(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var heard diary
		session.Listen(lines(&heard))
		st := s.Attach()
		for key, token := range map[string]uint64{"a": 1, "b": 2, "c": 3} {
			locks(t, session, st, key, token)
		}
		first, answered1 := lockAsync(session, st, "d")
		next, answered2 := lockAsync(session, st, "e")
		synctest.Wait()
		heard.lines = nil
		opened := st.Opening.GetOpen()
		st.End <- status.Error(codes.Unavailable, "shutting down")

		st = s.Accept()
		if open := st.Opening.GetOpen(); !open.GetResume() || open.GetId() != opened.GetId() || open.GetSecret() != opened.GetSecret() {
			t.Errorf("it opens %v, after %v", open, opened)
		}
		st.Answer(st.Opening, locktest.Holds("a", 1, 1))
		st.Answer(st.Opening, locktest.Holds("b", 20, 20)) // it was lost and granted again meanwhile
		st.Opened()
		synctest.Wait()
		heard.says(t, "b HOLDING-NONE lost, b NONE-HOLDING, c HOLDING-NONE lost")
		for i, want := range []*models.SessionRequest{first, next} {
			if got := st.Next(); got.GetLock().GetResource() != want.GetLock().GetResource() {
				t.Errorf("request %d after the resumption is %v, not %v", i, got, want)
			} else {
				st.Answer(got, locktest.Holds(got.GetLock().GetResource(), 30, 30))
			}
		}
		must(t, errors.Join(<-answered1, <-answered2))
		s.Finish()
		must(t, session.Close(t.Context()))
		if err := session.Err(); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestSessionOfRolledBackServer: a server that resumes a session with an older state than the session knows has lost
// the later changes. The session loses these locks too, and takes the server's state.
func TestSessionOfRolledBackServer(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		st := s.Attach()
		for key, token := range map[string]uint64{"a": 10, "b": 20, "c": 30} {
			locks(t, session, st, key, token)
		}
		var heard diary
		session.Listen(lines(&heard))
		causes := make(chan error, 10)
		session.Listen(func(s lock.Status) { causes <- s.Cause })
		st.End <- status.Error(codes.Unavailable, "shutting down")

		st = s.Accept()
		st.Answer(st.Opening, locktest.Holds("a", 5, 5))   // a grant before the session's known grant
		st.Answer(st.Opening, locktest.Holds("b", 20, 20)) // known state
		st.Opened()
		synctest.Wait()
		heard.says(t, "a HOLDING-NONE lost, a NONE-HOLDING, c HOLDING-NONE lost")
		if cause := <-causes; !errors.Is(cause, lock.ErrRolledBack) {
			t.Errorf("a was lost because of %v", cause)
		}
		if now := session.Status("a"); now.Token != 5 {
			t.Errorf("the session holds a with token %d", now.Token)
		}
		s.Finish()
		must(t, session.Close(t.Context()))
	})
}

// TestUnlockWithoutAnswer: a session releases claims by a command, and the answer is lost with its stream. Its
// listeners see no loss, but they do for claims that end otherwise in the meantime.
func TestUnlockWithoutAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		give func(*lock.Session) error
		left []*models.SessionStatus
		want string
	}{
		"unlock": {
			give: func(s *lock.Session) error { return second(s.Unlock(context.Background(), "a")) },
			left: []*models.SessionStatus{locktest.Holds("c", 3, 3)},
			want: "a HOLDING-NONE, b HOLDING-NONE lost",
		},
		"unlock all": {
			give: func(s *lock.Session) error { return s.UnlockAll(context.Background()) },
			want: "a HOLDING-NONE, b HOLDING-NONE, c HOLDING-NONE",
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				session := s.session()
				st := s.Attach()
				for token, key := range []string{"a", "b", "c"} {
					locks(t, session, st, key, uint64(token+1))
				}
				var heard diary
				session.Listen(lines(&heard))
				given := harness.Later(func() error { return test.give(session) })
				st.Next() // carried out, and its answer is lost
				st.End <- status.Error(codes.Unavailable, "shutting down")
				st = s.Attach(test.left...)
				asked := st.Next()
				st.Send(&models.SessionResponse{Sequence: asked.GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
				must(t, <-given)
				synctest.Wait()
				slices.Sort(heard.lines)
				heard.says(t, test.want)
			})
		})
	}
}

// TestSessionResumesSlowly: a session with very many locks resumes at the first attempt although a slow network takes
// long to report them. A silent stream is abandoned.
func TestSessionResumesSlowly(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(ttl))
		st := s.Attach()
		keys := []string{"a", "b", "c"}
		for token, key := range keys {
			locks(t, session, st, key, uint64(token+1))
		}
		st.End <- status.Error(codes.Unavailable, "shutting down")
		s.Accept()
		st = s.Accept() // nothing came over the stream before
		for token, key := range keys {
			time.Sleep(ttl / 6)
			st.Answer(st.Opening, locktest.Holds(key, uint64(token+1), uint64(token+1)))
		}
		st.Opened()
		st.Beat(st.Raw())
		stands(t, session, "a", lock.Holding)
		if len(s.Streams) > 0 {
			t.Error("it has given up the stream that brought what it holds")
		}
	})
}

// refuse answers a command with an error.
func refuse(st *locktest.Stream, asked *models.SessionRequest, code codes.Code) {
	st.Send(&models.SessionResponse{Sequence: asked.GetSequence(), Event: &models.SessionResponse_Error{
		Error: &models.CommandError{Code: int32(code), Message: "the database is away"},
	}})
}

// TestCloseRefused: Close returns when a server has closed the session. It retries after a momentary error, and returns
// any other error, or its context's with the reason.
func TestCloseRefused(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(st *locktest.Stream)
		want   string
	}{
		"for the moment": {func(st *locktest.Stream) {
			for range 3 {
				refuse(st, st.Next(), codes.Unavailable)
			}
			st.Send(&models.SessionResponse{Sequence: st.Next().GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		}, ""},
		"for too long": {func(st *locktest.Stream) {
			for asked := range st.Requests {
				refuse(st, asked, codes.Unavailable)
			}
		}, "context deadline exceeded: rpc error: code = Unavailable desc = the database is away"},
		"for good": {func(st *locktest.Stream) { refuse(st, st.Next(), codes.PermissionDenied) }, "code = PermissionDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				session, err := lock.NewSession(anyAddress, s.option())
				must(t, err)
				st := s.Attach()
				locks(t, session, st, "k", 1)
				go test.answer(st)
				ctx, cancel := context.WithTimeout(t.Context(), 3100*time.Millisecond)
				defer cancel()
				if err := session.Close(ctx); (err == nil) != (test.want == "") || !strings.Contains(fmt.Sprint(err), test.want) && err != nil {
					t.Errorf("%v, want %q", err, test.want)
				}
			})
		})
	}
}

// TestCloseBehindCommands: a session sends its request to close even when it has sent the maximum number of
// unanswered commands, and repeats it however often the server fails.
func TestCloseBehindCommands(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session, err := lock.NewSession(anyAddress, s.option(), lock.WithTTL(time.Hour))
		must(t, err)
		st := s.Attach()
		const most = 256
		var asked sync.WaitGroup
		for i := range most + 50 {
			asked.Go(func() { _, _ = session.Lock(t.Context(), fmt.Sprint("k", i)) })
		}
		for range most {
			st.Next()
		}
		synctest.Wait()
		if n := len(st.Requests); n > 0 {
			t.Errorf("%d commands more than %d are under way", n, most)
		}
		go func() {
			for range 2 * most {
				refuse(st, st.Next(), codes.Unavailable)
			}
			st.Send(&models.SessionResponse{Sequence: st.Next().GetSequence(), Event: &models.SessionResponse_Done{Done: &models.Done{}}})
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		must(t, session.Close(ctx))
		asked.Wait()
	})
}

// TestSessionSilentServer: a session whose heartbeat is not answered in time opens another stream, long before its trust window ends.
func TestSessionSilentServer(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(ttl))
		st := s.Attach()
		started := time.Now()
		locks(t, session, st, "k", 1)
		next := s.Attach(locktest.Holds("k", 1, 1)) // the first stream answers no further heartbeat
		if took := time.Since(started); took > ttl*7/10 {
			t.Errorf("it took %v until it tried another one", took)
		}
		next.Beat(next.Raw())
		time.Sleep(ttl / 4)
		if got := stands(t, session, "k", lock.Holding); got.Token != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestSessionResigns: a session whose heartbeats are not acknowledged resigns when its trust window ends, before a server could grant
// its locks to others.
func TestSessionResigns(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(ttl))
		lost := make(chan time.Time, 1)
		session.Listen(func(s lock.Status) {
			if s.Current == lock.None {
				lost <- time.Now()
			}
		})
		st := s.Attach()
		sent := time.Now()
		locks(t, session, st, "k", 1)
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
	})
}

// TestSessionStaysDone: a session whose trust window has ended in the pause between two attempts opens no further stream, even if no
// timer has run, as after its process was stopped.
func TestSessionStaysDone(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client, err := lock.NewClient(anyAddress, s.option(), lock.WithTTL(ttl))
		must(t, err)
		go func() {
			st := s.Attach()
			st.Answer(st.Next(), locktest.Holds("k", 1, 1))
			st.End <- status.Error(codes.Unavailable, "shutting down")
		}()
		started := time.Now()
		held, err := client.Acquire(t.Context(), "k")
		must(t, err)
		lock.StopClock(held)
		for over := false; !over; {
			select {
			case st := <-s.Streams:
				if err := held.Err(); err != nil {
					t.Errorf("after %v, with %v, it opens a stream", time.Since(started), err)
				}
				st.End <- status.Error(codes.Unavailable, "shutting down")
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

// TestSessionOpening: how a session reacts to errors of its stream, before it is open and after that.
func TestSessionOpening(t *testing.T) {
	denied, starting := status.Error(codes.PermissionDenied, "not you"), status.Error(codes.Unavailable, "starting")
	for name, test := range map[string]func(t *testing.T, s *script, session *lock.Session){
		"an attempt was carried out and forgotten": func(t *testing.T, s *script, _ *lock.Session) {
			st := s.Accept()
			st.End <- reason(codes.NotFound, models.ReasonSessionEnded)
			before, after := st.Opening.GetOpen(), s.Attach().Opening.GetOpen()
			if after.GetId() == before.GetId() || after.GetResume() {
				t.Errorf("it opens %v after %v", after, before)
			}
		},
		"refused": func(t *testing.T, s *script, session *lock.Session) {
			s.Accept().End <- denied
			err := second(session.Lock(t.Context(), "k"))
			if status.Code(err) != codes.PermissionDenied || session.Err() == nil {
				t.Errorf("%v, %v", err, session.Err())
			}
		},
		"the server is not there yet": func(_ *testing.T, s *script, _ *lock.Session) {
			for range 5 {
				s.Accept().End <- starting
			}
			s.Attach()
		},
		"ended": func(t *testing.T, s *script, session *lock.Session) {
			s.Attach().End <- reason(codes.NotFound, models.ReasonSessionEnded)
			<-session.Done()
			if err := session.Err(); !errors.Is(err, lock.ErrSessionEnded) {
				t.Error(err)
			}
		},
		"moved by a late request of its own": func(t *testing.T, s *script, _ *lock.Session) {
			s.Attach().End <- reason(codes.Aborted, models.ReasonSessionMoved)
			if !s.Attach().Opening.GetOpen().GetResume() {
				t.Error("it does not resume")
			}
		},
		"denied while it holds": func(t *testing.T, s *script, session *lock.Session) {
			st := s.Attach()
			locks(t, session, st, "k", 1)
			st.End <- denied
			s.Accept().End <- denied
			s.Attach(locktest.Holds("k", 1, 1))
			stands(t, session, "k", lock.Holding)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) { test(t, s, s.session()) })
		})
	}
}

// TestRefusedBesideOutage: a session that a server refuses to open is over even while another server cannot be reached.
func TestRefusedBesideOutage(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		denied, starting := status.Error(codes.PermissionDenied, "not you"), status.Error(codes.Unavailable, "starting")
		session, err := lock.NewSession([]string{"127.0.0.1:1", "127.0.0.1:2"}, s.option())
		must(t, err)
		t.Cleanup(func() { _ = session.Close(context.Background()) })
		answered := harness.Later(func() error { return second(session.Lock(t.Context(), "k")) })
		for _, err := range []error{denied, starting, denied} {
			s.Accept().End <- err
		}
		select {
		case err := <-answered:
			if status.Code(err) != codes.PermissionDenied || session.Err() == nil {
				t.Errorf("%v, %v", err, session.Err())
			}
		case <-time.After(time.Minute):
			t.Error("it goes on")
		}
	})
}

// TestSessionTrustsItsOpening: the answer to the opening begins the trust window, which counts from when the opening was sent. So commands follow at once, and
// a session whose heartbeats nobody answers resigns in time.
func TestSessionTrustsItsOpening(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		started := time.Now()
		session := s.session(lock.WithTTL(ttl))
		st := s.Accept()
		time.Sleep(3 * time.Second)
		st.Opened()
		opened := time.Now()
		answered := harness.Later(func() error { return second(session.Lock(t.Context(), "k")) })
		for asked := st.Raw(); ; asked = st.Raw() {
			if asked.GetLock() != nil {
				st.Answer(asked, locktest.Holds("k", 1, 1))
				break
			}
		}
		must(t, <-answered)
		if took := time.Since(opened); took > 0 {
			t.Errorf("the first lock took %v", took)
		}
		<-session.Done()
		if held, most := time.Since(started), ttl-lease.Margin(ttl); held != most || !errors.Is(session.Err(), lock.ErrTimeUp) {
			t.Errorf("it was trusted for %v, want %v: %v", held, most, session.Err())
		}
	})
}

// TestSessionOpenedLate: when the opening is answered so late that its trust window is over, a session sends no command before a heartbeat was acknowledged.
func TestSessionOpenedLate(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session(lock.WithTTL(time.Second))
		answered := harness.Later(func() error { return second(session.Lock(t.Context(), "k")) })
		st := s.Accept()
		for range 5 {
			time.Sleep(300 * time.Millisecond)
			st.Answer(st.Opening, locktest.Holds("other", 1, 1)) // each answer shows that the server works
		}
		st.Opened()
		beat := st.Raw()
		time.Sleep(200 * time.Millisecond)
		if beat.GetHeartbeat() == nil || len(st.Requests) > 0 {
			t.Errorf("%v, and %d requests after it", beat, len(st.Requests))
		}
		st.Beat(beat)
		st.Answer(st.Next(), locktest.Holds("k", 1, 1))
		must(t, <-answered)
	})
}

// TestCommandsTogether: commands given at the same time go to the server in as few messages as possible, in order, and
// again so over another stream. A server without batches gets them one by one.
func TestCommandsTogether(t *testing.T) {
	const many = 100
	for name, c := range map[string]struct {
		batches bool
		value   string
		sizes   []int // of the messages after the opening; the first one is a heartbeat, alone
	}{
		"together":    {true, "", []int{1, 64, 36}},
		"one by one":  {false, "", slices.Repeat([]int{1}, 1+many)},
		"long values": {true, strings.Repeat("v", 60<<10), slices.Repeat([]int{1}, 1+16)}, // 16 are under way at once
		"values":      {true, strings.Repeat("v", 1000), append([]int{1}, slices.Repeat([]int{4}, many/4)...)},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				session := s.session()
				st := s.Accept()
				answered := make(chan error, many)
				for i := range many {
					go func() { answered <- second(session.Lock(context.Background(), fmt.Sprint(i), lock.WithValue(c.value))) }()
				}
				synctest.Wait()
				st.Batches = c.batches
				st.Opened()
				synctest.Wait()
				if got := st.Sizes(); !slices.Equal(got, c.sizes) {
					t.Errorf("messages of %v requests, want %v", got, c.sizes)
				}
				st.Raw() // the heartbeat, which nobody answers
				var asked []string
				for len(st.Requests) > 0 {
					asked = append(asked, st.Raw().GetLock().GetResource())
				}
				st.End <- status.Error(codes.Unavailable, "shutting down")
				st = s.Accept()
				st.Batches = c.batches
				st.Opened()
				synctest.Wait()
				if got := st.Sizes(); !slices.Equal(got, c.sizes) {
					t.Errorf("then messages of %v requests, want %v", got, c.sizes)
				}
				var again []string
				var held []*models.SessionResponse
				for range asked {
					request := st.Next()
					again = append(again, request.GetLock().GetResource())
					held = append(held, granted(request))
				}
				if !slices.Equal(asked, again) {
					t.Errorf("it asks for %v, then for %v", asked, again)
				}
				held[0].More = held[1:]
				st.Send(held[0])
				for range many - len(held) {
					st.Send(granted(st.Next()))
				}
				for range many {
					must(t, <-answered)
				}
			})
		})
	}
}

// granted answers a LOCK.
func granted(request *models.SessionRequest) *models.SessionResponse {
	sequence := request.GetSequence()
	status := locktest.Holds(request.GetLock().GetResource(), sequence, sequence)
	return &models.SessionResponse{Sequence: sequence, Event: &models.SessionResponse_Status{Status: status}}
}

// TestReleaseIsExact: Release names the token of its grant, so that it cannot end another one. It returns when the server has answered. A
// second Release sends nothing.
func TestReleaseIsExact(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		acquired := acquiring(context.Background(), s.client(), "k")
		st := s.Attach()
		st.Answer(st.Next(), locktest.Holds("k", 5, 5))
		held := (<-acquired).held
		released := make(chan error, 2)
		for range 2 {
			go func() { released <- held.Release(context.Background()) }()
		}
		asked := st.Next()
		if asked.GetUnlock().Token == nil || asked.GetUnlock().GetToken() != 5 {
			t.Errorf("it asks %v", asked)
		}
		time.Sleep(time.Second)
		if len(released) > 0 {
			t.Error("released before the server knows")
		}
		st.Answer(asked, locktest.Ended("k", 5, 6, models.Status_STATUS_RELEASED))
		must(t, errors.Join(<-released, <-released))
		synctest.Wait()
		for len(st.Requests) > 0 {
			if m := <-st.Requests; m.GetHeartbeat() == nil {
				t.Errorf("it asks for more: %v", m)
			}
		}
	})
}

// TestSessionRunnerRefused: when a session is refused, the error of its runner names the lock once.
func TestSessionRunnerRefused(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client()
		p := ifrit.Background(lock.NewSessionRunner(client, "k"))
		s.Accept().End <- status.Error(codes.PermissionDenied, "not you")
		if err := <-p.Wait(); status.Code(err) != codes.PermissionDenied || strings.Count(err.Error(), `lock "k"`) != 1 {
			t.Error(err)
		}
		must(t, client.Close())
		if err := <-ifrit.Background(lock.NewSessionRunner(client, "k")).Wait(); !errors.Is(err, lock.ErrClosed) || strings.Count(err.Error(), `lock "k"`) != 1 {
			t.Error(err)
		}
	})
}

// TestSessionRunnersInDoubt: Unverifiable is also called for a runner that takes over within a session while no heartbeat is
// acknowledged.
func TestSessionRunnersInDoubt(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client(lock.WithTTL(ttl))
		var first, next diary
		p := ifrit.Background(lock.NewSessionRunner(client, "k", first.callbacks()))
		st := s.Attach()
		asked := st.Next()
		q := ifrit.Background(lock.NewSessionRunner(client, "k", next.callbacks()))
		synctest.Wait()
		st.Answer(asked, locktest.Holds("k", 1, 1)) // for both
		<-p.Ready()
		time.Sleep(ttl * 7 / 10) // without an answer to a heartbeat
		synctest.Wait()
		first.says(t, "acquired, unverifiable")
		must(t, end(p))
		<-q.Ready()
		for len(s.Streams) > 1 {
			s.Accept()
		}
		st = s.Attach(locktest.Holds("k", 1, 1))
		st.Beat(st.Raw())
		synctest.Wait()
		next.says(t, "acquired, unverifiable, verified")
		s.Finish()
		must(t, client.Close())
		<-q.Wait()
	})
}

// TestSessionLateNews: events that come out of order or twice change nothing, and a listener is called once for each change.
func TestSessionLateNews(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var heard diary
		session.Listen(lines(&heard))
		st := s.Attach()
		st.Beat(st.Raw())
		go func() { must(t, second(session.Lock(t.Context(), "k"))) }()
		asked := st.Next()
		st.Answer(nil, locktest.Holds("k", 5, 5)) // the event before the answer
		st.Answer(asked, locktest.Holds("k", 5, 5))
		st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED))
		st.Answer(nil, locktest.Holds("k", 5, 5)) // late
		st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED))
		synctest.Wait()
		heard.says(t, "k NONE-HOLDING, k HOLDING-NONE lost")
		stands(t, session, "k", lock.None)
	})
}

// TestLockRepeatedAfterLoss: a resumed session holds a lock whose command it sends again, and loses it before the
// servers have answered that. The claim of the repeated command is released if nobody waits for it any more;
// otherwise it serves the waiters.
func TestLockRepeatedAfterLoss(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, c *lock.Client, held *lock.Hold, lose func(), st *locktest.Stream, asked *models.SessionRequest){
		"lost": func(t *testing.T, _ *lock.Client, held *lock.Hold, lose func(), st *locktest.Stream, asked *models.SessionRequest) {
			lose()
			<-held.Done()
			st.Answer(asked, locktest.Holds("k", 9, 9))
			givesUp(t, st, 9)
		},
		"released, and lost": func(t *testing.T, _ *lock.Client, held *lock.Hold, lose func(), st *locktest.Stream, asked *models.SessionRequest) {
			released := harness.Later(func() error { return held.Release(context.Background()) })
			synctest.Wait()
			lose()
			st.Answer(asked, locktest.Holds("k", 9, 9))
			givesUp(t, st, 9)
			must(t, <-released)
		},
		"lost, and wanted": func(t *testing.T, c *lock.Client, held *lock.Hold, lose func(), st *locktest.Stream, asked *models.SessionRequest) {
			again := acquiring(t.Context(), c, "k")
			synctest.Wait()
			lose()
			<-held.Done()
			st.Answer(asked, locktest.Holds("k", 9, 9))
			if next := comes(t, time.Second, again); next.Token() != 9 {
				t.Errorf("the token is %d", next.Token())
			}
		},
		"lost, and wanted, and nothing was made": func(t *testing.T, c *lock.Client, held *lock.Hold, lose func(), st *locktest.Stream, asked *models.SessionRequest) {
			again := acquiring(t.Context(), c, "k")
			synctest.Wait()
			lose()
			<-held.Done()
			st.Answer(asked, &models.SessionStatus{Resource: "k", Current: models.Holding_HOLDING_NONE, Version: 6})
			st.Answer(st.Next(), locktest.Holds("k", 9, 9))
			if next := comes(t, time.Second, again); next.Token() != 9 {
				t.Errorf("the token is %d", next.Token())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				client := s.client()
				acquired := acquiring(context.Background(), client, "k")
				st := s.Attach()
				st.Next() // carried out, and its answer is lost
				st.End <- status.Error(codes.Unavailable, "shutting down")
				st = s.Attach(locktest.Holds("k", 5, 5))
				held := comes(t, time.Second, acquired)
				test(t, client, held, func() { st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED)) }, st, st.Next())
			})
		})
	}
}

// TestLockRepeatedAndRefused: a resumed session has the claims that the server reports, even if the server refuses the
// repeated lock command, because rules have changed or the database is unavailable. The caller holds or waits by the
// claim that was made, and gives it up.
func TestLockRepeatedAndRefused(t *testing.T) {
	waiting := &models.SessionStatus{
		Resource: "k", Current: models.Holding_HOLDING_WAITING, Version: 4, Claim: "claim-5", Status: models.Status_STATUS_WAITING,
	}
	for name, test := range map[string]struct {
		made *models.SessionStatus
		try  bool
		code codes.Code
	}{
		"held, denied":        {locktest.Holds("k", 5, 5), false, codes.PermissionDenied},
		"held, not now":       {locktest.Holds("k", 5, 5), false, codes.Unavailable},
		"tried, not now":      {locktest.Holds("k", 5, 5), true, codes.Unavailable},
		"in the line, denied": {waiting, false, codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script) {
				client := s.client()
				acquire := client.Acquire
				if test.try {
					acquire = client.TryAcquire
				}
				acquired := holding(func() (*lock.Hold, error) { return acquire(context.Background(), "k") })
				st := s.Attach()
				st.Next() // carried out, and its answer is lost
				st.End <- status.Error(codes.Unavailable, "shutting down")
				st = s.Attach(test.made)
				refuse(st, st.Next(), test.code)
				synctest.Wait()
				if test.made == waiting {
					st.Answer(nil, locktest.Holds("k", 5, 5))
				}
				held := comes(t, time.Second, acquired)
				time.Sleep(2 * time.Second)
				released := harness.Later(func() error { return held.Release(context.Background()) })
				givesUp(t, st, 5)
				must(t, <-released)
			})
		})
	}
	t.Run("by a command of the session", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script) {
			session := s.session()
			st := s.Attach()
			_, answered := lockAsync(session, st, "k")
			st.End <- status.Error(codes.Unavailable, "shutting down")
			st = s.Attach(locktest.Holds("k", 5, 5))
			refuse(st, st.Next(), codes.PermissionDenied)
			must(t, <-answered)
			stands(t, session, "k", lock.Holding)
		})
	})
}

// delayed is a context that blocks a goroutine that begins to wait for its end, until a channel is closed.
type delayed struct {
	context.Context
	until <-chan struct{}
}

func (d delayed) Done() <-chan struct{} {
	<-d.until
	return d.Context.Done()
}

// TestMutexLostAtOnce: a lock is granted and lost at once. Lock returns the loss and leaves the mutex unlocked: the
// next caller asks again.
func TestMutexLostAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		mutex := lock.NewMutex(session, "k")
		st := s.Attach()
		told := make(chan struct{})
		locked := harness.Later(func() error { return mutex.Lock(delayed{t.Context(), told}) })
		asked := st.Next()
		st.Answer(asked, locktest.Holds("k", 5, 5))
		st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED))
		stands(t, session, "k", lock.None)
		close(told)
		if err := <-locked; !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		if err := mutex.Unlock(); !errors.Is(err, lock.ErrNotLocked) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		locked = harness.Later(func() error { return mutex.Lock(ctx) })
		go func() { st.Answer(st.Next(), locktest.Holds("k", 7, 7)) }()
		must(t, <-locked)
	})
}

// givesUp answers heartbeats until the session releases "k", or the grant of "k" with a token.
func givesUp(t *testing.T, st *locktest.Stream, token uint64) {
	t.Helper()
	for range 10 {
		asked := st.Raw()
		if asked.GetHeartbeat() != nil {
			st.Beat(asked)
			continue
		}
		if unlock := asked.GetUnlock(); unlock == nil || unlock.Token != nil && unlock.GetToken() != token {
			t.Fatalf("it asks %v", asked)
		}
		st.Answer(asked, locktest.Ended("k", token, token+1, models.Status_STATUS_RELEASED))
		return
	}
	t.Fatal("it gives nothing up")
}

// TestTryDuringReconnect: a reader tries while readers of its session hold, and the end of the stream cuts off its
// read of the queue. It gets its answer after the session has resumed.
func TestTryDuringReconnect(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		asked := make(chan struct{}, 10)
		s.queue = func(ctx context.Context) (*models.Queue, error) {
			asked <- struct{}{}
			if s.Calls("GetQueue") == 1 {
				<-ctx.Done()
			}
			return &models.Queue{}, nil
		}
		client := s.client()
		first := acquiring(t.Context(), client, "k", lock.WithShared())
		st := s.Attach()
		st.Answer(st.Next(), locktest.Holds("k", 5, 5))
		comes(t, time.Second, first)
		tried := holding(func() (*lock.Hold, error) { return client.TryAcquire(t.Context(), "k", lock.WithShared()) })
		<-asked
		st.End <- status.Error(codes.Unavailable, "shutting down")
		st = s.Attach(locktest.Holds("k", 5, 5))
		st.Beat(st.Raw())
		if held := comes(t, time.Minute, tried); held.Token() != 5 {
			t.Errorf("the token is %d", held.Token())
		}
	})
}

// hasFailed checks that a try has ended with the error of servers that cannot decide for the moment.
func hasFailed(t *testing.T, tried <-chan outcome) {
	t.Helper()
	select {
	case got := <-tried:
		if status.Code(got.err) != codes.Unavailable {
			t.Errorf("the try: %v", got.err)
		}
	default:
		t.Error("the try waits")
	}
}

// TestTryBesideFailure: a try that would share the claim of one that waits ends at once with the error of servers that cannot decide for the
// moment. The other one asks again.
func TestTryBesideFailure(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client()
		waiting := acquiring(t.Context(), client, "k", lock.WithShared())
		st := s.Attach()
		asked := st.Next()
		tried := holding(func() (*lock.Hold, error) { return client.TryAcquire(t.Context(), "k", lock.WithShared()) })
		synctest.Wait()
		refuse(st, asked, codes.Unavailable)
		synctest.Wait()
		hasFailed(t, tried)
		st.Answer(st.Next(), locktest.Holds("k", 1, 1))
		comes(t, time.Second, waiting)
	})
}

// TestTryBesideRelease: a try that comes while its client gives the lock up ends at once with the error of servers
// that cannot decide for the moment. The lock is released nevertheless.
func TestTryBesideRelease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client()
		acquired := acquiring(t.Context(), client, "k")
		st := s.Attach()
		st.Answer(st.Next(), locktest.Holds("k", 1, 1))
		held := comes(t, time.Second, acquired)
		released := harness.Later(func() error { return held.Release(context.Background()) })
		asked := st.Next()
		tried := holding(func() (*lock.Hold, error) { return client.TryAcquire(t.Context(), "k") })
		synctest.Wait()
		refuse(st, asked, codes.Unavailable)
		if err := <-released; status.Code(err) != codes.Unavailable {
			t.Errorf("the release: %v", err)
		}
		synctest.Wait()
		hasFailed(t, tried)
		givesUp(t, st, 1)
	})
}

// TestGivenUpUnasked: requests that nobody waits for any more are not sent when a server can be reached again, and do
// not delay others.
func TestGivenUpUnasked(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		client := s.client()
		session, err := client.Session()
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := []<-chan error{
			harness.Later(func() error { return second(client.Acquire(ctx, "a")) }),
			harness.Later(func() error { return second(client.TryAcquire(ctx, "b")) }),
			harness.Later(func() error { return second(client.Acquire(ctx, "k", lock.WithValue("another claim"))) }),
			harness.Later(func() error { return second(session.Lock(ctx, "c")) }),
		}
		synctest.Wait()
		wanted := acquiring(t.Context(), client, "k")
		for _, err := range gone {
			if err := <-err; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		st := s.Attach()
		asked := st.Next()
		if l := asked.GetLock(); l.GetResource() != "k" || l.GetValue() != "" {
			t.Errorf("it asks %v", asked)
		}
		st.Answer(asked, locktest.Holds("k", 1, 1))
		comes(t, time.Second, wanted)
		synctest.Wait()
		for len(st.Requests) > 0 {
			if m := <-st.Requests; m.GetHeartbeat() == nil {
				t.Errorf("it asks for more: %v", m)
			}
		}
	})
}

// TestOpenedTwice: a server that answers a heartbeat as if it opened the session again changes nothing. The session
// resumes over another stream, because its heartbeat has no answer.
func TestOpenedTwice(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		st := s.Attach()
		locks(t, session, st, "k", 1)
		beat := st.Raw()
		if beat.GetHeartbeat() == nil {
			t.Fatalf("it sends %v", beat)
		}
		st.Send(&models.SessionResponse{Sequence: beat.GetSequence(), Event: &models.SessionResponse_Opened{Opened: &models.SessionOpened{}}})
		st = s.Accept()
		st.Answer(st.Opening, locktest.Holds("k", 1, 1))
		st.Opened()
		synctest.Wait()
		if got := session.Status("k"); got.Current != lock.Holding || session.Err() != nil {
			t.Errorf("%v, %v", got, session.Err())
		}
	})
}
