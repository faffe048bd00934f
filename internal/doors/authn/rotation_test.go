package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// rotating is an issuer with one key, and the keys of a server that follows it.
func rotating(t *testing.T) (keys *remoteKeys, network pages, rotate func(id string) (jwt string)) {
	const issuer = "https://issuer.example"
	network = pages{issuer + "/.well-known/openid-configuration": fmt.Sprintf(`{"issuer": %q, "jwks_uri": "%s/keys"}`, issuer, issuer)}
	rotate = func(id string) string {
		synctest.Wait() // for the end of a fetch
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key := jose.JSONWebKey{Key: private, KeyID: id, Algorithm: "ES256", Use: "sig"}
		text, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
		if err != nil {
			t.Fatal(err)
		}
		network[issuer+"/keys"] = string(text)
		return signedBy(t, key)
	}
	return &remoteKeys{issuer: issuer, client: clientOver(network), log: slog.New(slog.DiscardHandler)}, network, rotate
}

// TestRotationWithoutIDs: if an issuer gives its keys no ids, a new key is found all the same.
func TestRotationWithoutIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, _, rotate := rotating(t)
		for range 3 {
			jwt := rotate("")
			time.Sleep(2 * coolDown)
			if _, err := keys.VerifySignature(t.Context(), jwt); err != nil {
				t.Errorf("a new key: %v", err)
			}
		}
	})
}

// TestLastKeyThatIsWithdrawn: an issuer with an empty set of keys has withdrawn the last one. An answer without a set
// of keys changes nothing.
func TestLastKeyThatIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for answer, withdrawn := range map[string]bool{`{}`: false, `{"keys": null}`: false, `[]`: false, `{"keys": []}`: true, `{"keys": [{"kty": "new"}]}`: true} {
			keys, network, rotate := rotating(t)
			jwt := rotate("one")
			if _, err := keys.VerifySignature(t.Context(), jwt); err != nil {
				t.Fatalf("a key of the issuer: %v", err)
			}
			synctest.Wait()
			network[keys.issuer+"/keys"] = answer
			for range 3 { // one call begins a fetch, and is not kept waiting
				time.Sleep(keyRefresh + time.Second)
				_, _ = keys.VerifySignature(t.Context(), jwt)
				synctest.Wait()
			}
			if _, err := keys.VerifySignature(t.Context(), jwt); errors.Is(err, errUnknownKey) != withdrawn || err != nil && !withdrawn {
				t.Errorf("the issuer answers %s: %v", answer, err)
			}
		}
	})
}

// TestKeysThatNobodyUsed: a key that was withdrawn while nobody called is never accepted again, even for a call that does not wait for the issuer. One that
// still is, is, and so are all while the issuer cannot be reached.
func TestKeysThatNobodyUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, network, rotate := rotating(t)
		jwt := rotate("one")
		for _, pause := range []time.Duration{0, time.Hour, keyRefresh + time.Second, time.Hour} {
			time.Sleep(pause)
			if _, err := keys.VerifySignature(t.Context(), jwt); err != nil {
				t.Errorf("a key of the issuer, after %s: %v", pause, err)
			}
		}
		time.Sleep(time.Hour)
		rotate("two")
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := keys.VerifySignature(gone, jwt); err == nil {
			t.Error("a key that was withdrawn an hour ago, and a caller who does not wait for the issuer: it is good")
		}
		if _, err := keys.VerifySignature(t.Context(), jwt); !errors.Is(err, errUnknownKey) {
			t.Errorf("a key that was withdrawn an hour ago: %v", err)
		}
		jwt = rotate("three")
		time.Sleep(time.Hour)
		if _, err := keys.VerifySignature(t.Context(), jwt); err != nil {
			t.Errorf("a new key: %v", err)
		}
		synctest.Wait()
		clear(network)
		time.Sleep(time.Hour)
		for range 3 {
			if _, err := keys.VerifySignature(t.Context(), jwt); err != nil {
				t.Errorf("a known key, and no issuer: %v", err)
			}
		}
		synctest.Wait()
		keys.client = &http.Client{Transport: &silent{}}
		time.Sleep(time.Hour)
		for _, longest := range []time.Duration{keyWait, 0} {
			begin := time.Now()
			if _, err := keys.VerifySignature(t.Context(), jwt); err != nil || time.Since(begin) > longest {
				t.Errorf("a known key, and an issuer that hangs: %v after %s", err, time.Since(begin))
			}
		}
		time.Sleep(time.Minute) // the running fetch ends
	})
}
