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

// script is a server that does what a test says, and makes clients of it.
type script struct {
	clients
	*locktest.Script
	claims sync.Map // by id: the functions that answer GetClaim
}

// scripted runs a test with a fake clock and a script, which lets the sessions that are left close at the end.
func scripted(t *testing.T, test func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(3 * time.Minute) }) // what clients left ends
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

// lines notes what a listener hears.
func lines(d *diary) func(lock.Status) {
	return func(s lock.Status) {
		text := fmt.Sprintf("%s %s-%s", s.Resource, s.Previous, s.Current)
		if errors.Is(s.Cause, lock.ErrLost) {
			text += " lost"
		}
		d.note("%s", text)
	}
}

// TestSessionLateNews: news that come after later ones, or twice, change nothing, and a listener hears each
// step once.
func TestSessionLateNews(t *testing.T) {
	scripted(t, func(t *testing.T, s *script) {
		session := s.session()
		var heard diary
		session.Listen(lines(&heard))
		st := s.Attach()
		st.Beat(st.Raw())
		go func() { must(t, second(session.Lock(t.Context(), "k"))) }()
		asked := st.Next()
		st.Answer(nil, locktest.Holds("k", 5, 5)) // the news first
		st.Answer(asked, locktest.Holds("k", 5, 5))
		st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED))
		st.Answer(nil, locktest.Holds("k", 5, 5)) // late
		st.Answer(nil, locktest.Ended("k", 5, 6, models.Status_STATUS_REVOKED))
		synctest.Wait()
		heard.says(t, "k NONE-HOLDING, k HOLDING-NONE lost")
		stands(t, session, "k", lock.None)
	})
}
