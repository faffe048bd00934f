package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/locktest"
	"github.com/locket-service/locket/models"
)

// script is a scripted server, and makes clients of it.
type script struct {
	clients
	*locktest.Script
	claims sync.Map // by id: the functions that answer GetClaim
}

// scripted runs a test with a fake clock and a scripted server. At the end the server lets the open sessions close.
func scripted(t *testing.T, test func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(3 * time.Minute) }) // for what clients do in the background
		listener := bufconn.Listen(1 << 20)
		s := &script{clients: clients{locktest.Over(listener), t}}
		s.Script, _ = locktest.Serve(t, listener, s.answer, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
		test(t, s)
		s.Finish()
	})
}

func (s *script) answer(_ context.Context, method string, request any) (any, error) {
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
