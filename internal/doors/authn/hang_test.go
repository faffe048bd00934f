package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// silent is an issuer that never answers.
type silent struct{ asked atomic.Int64 }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func signedBy(t *testing.T, key jose.JSONWebKey) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return jwt
}

// While the issuer does not answer, JWTs with unknown keys wait for at most a second, at most maxWaiting of them, and
// only once; JWTs with known keys do not wait.
func TestIssuerThatHangs(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: "known", Algorithm: "ES256", Use: "sig"}
	good := signedBy(t, key)
	key.KeyID = "unknown"
	bad := signedBy(t, key)
	key.KeyID = "known"
	synctest.Test(t, func(t *testing.T) {
		issuer := &silent{}
		keys := &remoteKeys{
			issuer: "https://issuer.example", client: &http.Client{Transport: issuer}, log: slog.New(slog.DiscardHandler),
			set: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}}, fetched: time.Now(),
		}
		time.Sleep(time.Minute)
		const calls = 1000
		begin := time.Now()
		took := make(chan time.Duration, calls)
		verify := func() {
			var unavailable error
			_, err := keys.VerifySignature(context.WithValue(t.Context(), unavailableKey{}, &unavailable), bad)
			if err == nil || unavailable == nil {
				t.Errorf("an unknown key: %v", err)
			}
			took <- time.Since(begin)
		}
		for range calls {
			go verify()
		}
		synctest.Wait()
		if n := len(took); n != calls-maxWaiting {
			t.Errorf("%d calls were answered at once, want all but %d", n, maxWaiting)
		}
		if _, err := keys.VerifySignature(t.Context(), good); err != nil || time.Since(begin) > 0 {
			t.Errorf("a known key: %v after %s", err, time.Since(begin))
		}
		for range calls {
			if d := <-took; d != 0 && d != keyWait {
				t.Fatalf("a call waited for %s", d)
			}
		}
		begin = time.Now()
		for range 30 { // even after the fetch has failed, and while the next one runs
			verify()
			if d := <-took; d != 0 {
				t.Fatalf("a later call waited for %s", d)
			}
			time.Sleep(time.Second)
			begin = time.Now()
		}
		if n := issuer.asked.Load(); n > 6 {
			t.Errorf("the issuer was asked %d times in 31 s", n)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := keys.VerifySignature(ctx, bad); err == nil {
			t.Error("a caller that has gone")
		}
		time.Sleep(time.Minute) // the running fetch ends
	})
	if keyWait >= fetchTimeout {
		t.Error(fmt.Sprint("a call waits as long as a fetch: ", keyWait))
	}
}
