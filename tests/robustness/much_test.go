package robustness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// much are the claims of a session before its end.
type much struct {
	locks, value int
}

// hold locks it by a session, which then also waits for the resource "last" of another owner.
func (m much) hold(t *testing.T, s *harness.Session) {
	t.Helper()
	value := strings.Repeat("v", m.value)
	const together = 200
	for first := 0; first < m.locks; first += together {
		var asked []uint64
		for i := first; i < min(first+together, m.locks); i++ {
			asked = append(asked, s.Ask(harness.LockCommand(fmt.Sprint("k", i), func(l *models.LockCommand) { l.Value = value })))
		}
		for _, sequence := range asked {
			s.Answer(sequence)
		}
	}
	s.Lock("last", harness.Waiting)
}

// endings are the ways to end a session with all its claims.
var endings = map[string]func(t *testing.T, server *fixtures.Locket, s *harness.Session){
	"client killed": func(_ *testing.T, _ *fixtures.Locket, s *harness.Session) { s.BreakOff() },
	"unlock all":    func(_ *testing.T, _ *fixtures.Locket, s *harness.Session) { s.UnlockAll() },
	"close":         func(_ *testing.T, _ *fixtures.Locket, s *harness.Session) { s.Close() },
	"reset": func(t *testing.T, server *fixtures.Locket, s *harness.Session) {
		_, err := server.Client(t).ResetSessions(t.Context(), &models.ResetSessionsRequest{Keep: []string{harness.SessionID("other"), harness.SessionID("next")}})
		harness.Must(t, err)
	},
}

// isEnded ends a session that holds this much, and checks that everything is free after that.
func (m much) isEnded(t *testing.T, server *fixtures.Locket, end func(*testing.T, *fixtures.Locket, *harness.Session)) {
	t.Helper()
	other, next := openAt(t, server, "other"), openAt(t, server, "next")
	other.Lock("last", harness.Held)
	s := openAt(t, server, "much", harness.SessionTTL(10))
	m.hold(t, s)
	next.Lock("k0", harness.Waiting)
	begin := time.Now()
	end(t, server, s)
	next.Hears("k0", harness.Waiting, harness.Held)
	harness.Eventually(t, func() error {
		sessions, err := server.Client(t).ListSessions(t.Context(), &models.ListSessionsRequest{})
		for _, info := range sessions.GetSessions() {
			if info.GetId() == s.ID && info.GetHolding()+info.GetWaiting() > 0 {
				return fmt.Errorf("it has %v", info)
			}
		}
		return err
	})
	harness.LogTime(t, fmt.Sprintf("the end of %d locks of %d bytes", m.locks, m.value), begin)
	other.Unlock("last") // the session no longer waits for it
	next.Lock("last", harness.Held)
	next.Quiet()
}

// A session ends however much it holds, also with a database that takes small packets only.
func TestSessionWithMuch(t *testing.T) {
	t.Parallel()
	database := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			server := fixtures.StartLocket(t, "mysql:"+harness.Unhurried(t, database.CreateDatabase(t)))
			much{locks: 400, value: 4096}.isEnded(t, server, end)
		})
	}
}
