package pipe

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/locket-service/locket/keychain"
)

// serverThatRevokes grants every claim, and refuses to renew any.
type serverThatRevokes struct{}

func (serverThatRevokes) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := http.StatusCreated, `{"status": "active", "id": "a"}`
	if r.Method != http.MethodPost {
		code, body = http.StatusConflict, `{"status": "revoked"}`
	}
	header := http.Header{"Locket-Api": {"v1"}, "Content-Type": {"application/json"}, "Location": {"/v1/claims/a/"}}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestClaimAfterLoss: a client that has learned of a loss may claim again at once, also before the handler has
// heard of it; and it is told of the loss before it gets the new claim.
func TestClaimAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kc, err := keychain.New("http://locket", keychain.WithTransport(serverThatRevokes{}))
		if err != nil {
			t.Fatal(err)
		}
		var written strings.Builder
		h := &handler{keychain: kc, log: slog.New(slog.DiscardHandler), notices: true, claims: make(map[string]*entry)}
		h.out = newOutbox(&written, func(err error) { t.Error(err) })
		c, err := kc.Claim(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Refresh(t.Context(), 0); !errors.Is(err, keychain.ErrLost) {
			t.Fatalf("refreshed: %v", err)
		}
		// This is the state before the goroutine that watches the claim has had its turn.
		e := &entry{resource: "r", claim: c}
		h.claims["r"] = e
		h.take([]byte(`{"command":"claim","resource_name":"r","serial":1}`), nil)
		h.watch(e)
		synctest.Wait()
		_ = h.close(nil, kc.Close) // the server refuses to release the claim
		h.out.close(0)
		lost, granted := strings.Index(written.String(), `"notice":"lost"`), strings.Index(written.String(), `"result":"succeeded"`)
		if granted < 0 || lost < 0 || lost > granted || strings.Count(written.String(), `"notice"`) != 1 {
			t.Errorf("the client reads:\n%s", written.String())
		}
	})
}
