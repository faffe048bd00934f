package handlers_test

import (
	"testing"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestRenewed: the answer to a LOCK has renewed set if its commit renewed the session. No other answer has it.
func TestRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, server *server) {
		a, b := server.open(t, "a"), server.open(t, "b")
		for _, c := range []struct {
			name    string
			st      *harness.Session
			request *models.SessionRequest
			want    bool
		}{
			{"a claim that holds", a, harness.LockCommand("k"), true},
			{"the same again", a, harness.LockCommand("k"), false},
			{"a try in vain", b, harness.LockCommand("k", harness.Try), false},
			{"a claim that waits", b, harness.LockCommand("k"), true},
			{"the same again", b, harness.LockCommand("k"), false},
			{"a request that is refused", b, harness.LockCommand(""), false},
			{"unlock", b, harness.UnlockCommand("k"), false},
			{"unlock of nothing", b, harness.UnlockCommand("k"), false},
		} {
			if got := c.st.Answer(c.st.Ask(c.request)); got.GetStatus().GetRenewed() != c.want {
				t.Errorf("%s: got %v", c.name, got)
			}
		}
	})
}
