package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/locket-service/locket/internal/base/follow"
)

const (
	// fetchTimeout limits one request to an issuer.
	fetchTimeout = 5 * time.Second
	// maxDocument is the maximum size of a document of an issuer, in bytes.
	maxDocument = 1 << 20
	// keyRefresh is the age when keys are fetched again in the background, so that a key that the issuer has
	// withdrawn is dropped. Keys in use are never older than keyAge; older ones have not been used for a while.
	keyRefresh = 10 * time.Minute
	keyAge     = keyRefresh + 2*fetchTimeout
	// coolDown is the minimum time from a fetch to the next one, because anybody can make JWTs with unknown key ids.
	coolDown = 10 * time.Second
	// retryAfter is coolDown after a failed fetch.
	retryAfter = 2 * time.Second
	// keyWait is how long after the beginning of a fetch calls wait for it, and maxWaiting how many do, because anybody
	// can show a credential with an unknown key.
	keyWait    = time.Second
	maxWaiting = 256
)

var (
	errUnknownKey = errors.New("no key of the issuer made the signature")
	errNoKeysYet  = errors.New("they are being fetched")
	errPlainKeys  = errors.New("the issuer is asked over HTTPS, and its keys are at an address without TLS")
)

// unavailableKey is the key of a context for an *error, which a key set sets if it has no keys. The verifier keeps only
// the texts of errors.
type unavailableKey struct{}

func noKeys(ctx context.Context, err error) error {
	if unavailable, ok := ctx.Value(unavailableKey{}).(*error); ok {
		*unavailable = err
	}
	return err
}

// remoteKeys are the keys of an issuer with discovery. They are fetched in the background: at the start, every
// keyRefresh while they are used, and when a JWT has an unknown key (at most once in coolDown). Fetched keys stay in
// use while the issuer is unavailable. Keys older than keyAge are used only after the issuer was asked.
type remoteKeys struct {
	issuer string
	client *http.Client
	log    *slog.Logger

	mu       sync.Mutex
	set      *jose.JSONWebKeySet // nil before the first successful fetch
	fetched  time.Time           // when set was fetched
	began    time.Time           // when the last fetch began
	tried    time.Time           // when the last fetch ended
	err      error               // of the last fetch that ended
	fetching chan struct{}       // closed when the running fetch ends; nil without one
	waiting  int                 // number of calls that wait for it
}

// VerifySignature implements oidc.KeySet.
func (k *remoteKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	signed, err := parse(jwt)
	if err != nil {
		return nil, err
	}
	set, age := k.current()
	payload, known := verify(signed, set)
	if known && age <= keyAge {
		if age > keyRefresh {
			k.fetch()
		}
		return payload.text, payload.err
	}
	switch err := k.await(ctx); { // the key may be a new one, or withdrawn by now
	case err != nil && known && !errors.Is(err, ctx.Err()): // the issuer does not answer
		return payload.text, payload.err
	case err != nil:
		return nil, noKeys(ctx, fmt.Errorf("the keys of %s: %w", k.issuer, err))
	}
	set, _ = k.current()
	if payload, known = verify(signed, set); known {
		return payload.text, payload.err
	}
	return nil, errUnknownKey
}

// current returns the keys, nil before the first successful fetch, and how old they are.
func (k *remoteKeys) current() (*jose.JSONWebKeySet, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set, time.Since(k.fetched)
}

// await starts a fetch of the keys, unless one was made just now, and waits a short time for it. It returns an error if
// the keys may be outdated.
func (k *remoteKeys) await(ctx context.Context) error {
	fetched, wait, err := k.join()
	if fetched == nil {
		return err
	}
	defer k.leave()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-fetched:
	case <-timeout.C:
		return errNoKeysYet
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// join returns the fetch to wait for, and how long to wait. It returns nil if there is nothing to wait for or the call may not
// wait: none may while the last fetch has failed.
func (k *remoteKeys) join() (fetched <-chan struct{}, wait time.Duration, err error) {
	k.fetch()
	k.mu.Lock()
	defer k.mu.Unlock()
	wait = keyWait - time.Since(k.began)
	switch {
	case k.err != nil:
		return nil, 0, k.err
	case k.fetching == nil:
		return nil, 0, nil
	case wait <= 0 || k.waiting >= maxWaiting:
		return nil, 0, errNoKeysYet
	}
	k.waiting++
	return k.fetching, wait, nil
}

func (k *remoteKeys) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting--
}

// fetch starts a fetch of the keys, unless one is running or was made just now.
func (k *remoteKeys) fetch() {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := coolDown
	if k.err != nil {
		pause = retryAfter
	}
	if k.fetching != nil || time.Since(k.tried) < pause {
		return
	}
	k.fetching, k.began = make(chan struct{}), time.Now()
	go func() {
		set, err := k.ask()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tried, k.err = time.Now(), err
		switch {
		case err != nil:
			k.log.Warn("cannot fetch the keys of an OIDC issuer", "issuer", k.issuer, "error", err)
		case len(set.Keys) == 0:
			k.log.Warn("an OIDC issuer has withdrawn all its keys", "issuer", k.issuer)
		default:
			k.log.Debug("fetched the keys of an OIDC issuer", "issuer", k.issuer, "keys", len(set.Keys))
		}
		if err == nil {
			k.set, k.fetched = set, k.tried
		}
		close(k.fetching)
		k.fetching = nil
	}()
}

// ask requests the discovery document of the issuer, and its keys.
func (k *remoteKeys) ask() (*jose.JSONWebKeySet, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(context.Background(), k.client), 2*fetchTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, k.issuer)
	if err != nil {
		return nil, err
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, document.Keys, nil)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(k.issuer, "https:") && request.URL.Scheme != "https" {
		return nil, errPlainKeys
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", document.Keys, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return parseKeys(text)
}

// parseKeyFile is parseKeys for a file, which has a key.
func parseKeyFile(text []byte) (*jose.JSONWebKeySet, error) {
	set, err := parseKeys(text)
	if err == nil && len(set.Keys) == 0 {
		err = errors.New("there is no public key for signatures")
	}
	return set, err
}

// parseKeys parses a JWK set. Keys of unknown types are left out. There may be none: an issuer can withdraw the last one.
func parseKeys(text []byte) (*jose.JSONWebKeySet, error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if document.Keys == nil {
		return nil, errors.New("it is not a set of keys")
	}
	set := &jose.JSONWebKeySet{}
	for _, one := range document.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(one, &key) == nil && key.Valid() && key.IsPublic() && key.Use != "enc" {
			set.Keys = append(set.Keys, key)
		}
	}
	return set, nil
}

// fileKeys are the keys in a file.
type fileKeys struct {
	file *follow.File[*jose.JSONWebKeySet]
}

// VerifySignature implements oidc.KeySet.
func (k fileKeys) VerifySignature(_ context.Context, jwt string) ([]byte, error) {
	signed, err := parse(jwt)
	if err != nil {
		return nil, err
	}
	payload, known := verify(signed, k.file.Current())
	if !known {
		return nil, errUnknownKey
	}
	return payload.text, payload.err
}

func parse(jwt string) (*jose.JSONWebSignature, error) {
	allowed := make([]jose.SignatureAlgorithm, len(algorithms))
	for i, algorithm := range algorithms {
		allowed[i] = jose.SignatureAlgorithm(algorithm)
	}
	signed, err := jose.ParseSigned(jwt, allowed)
	if err != nil || len(signed.Signatures) != 1 {
		return signed, err
	}
	if kind, given := signed.Signatures[0].Header.ExtraHeaders[jose.HeaderType]; given {
		if text, ok := kind.(string); !ok || !kinds[strings.ToLower(text)] {
			return nil, fmt.Errorf("the JWT is of the type %v", kind)
		}
	}
	return signed, nil
}

// verification is the result of checking a signature.
type verification struct {
	text []byte
	err  error
}

// verify checks the signature of a JWT, and reports whether its key is known. A JWT without a key id is tried with
// every key; if none has made the signature, its key is unknown.
func verify(jwt *jose.JSONWebSignature, set *jose.JSONWebKeySet) (v verification, known bool) {
	if set == nil || len(jwt.Signatures) != 1 {
		return v, false
	}
	header := jwt.Signatures[0].Header
	for i := range set.Keys {
		key := &set.Keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if v.text, v.err = jwt.Verify(key); v.err == nil {
			return v, true
		}
		known = header.KeyID != ""
	}
	return v, known
}

// bounded is a transport that ends responses with an error after maxDocument bytes.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxDocument)
	}
	return response, err
}
