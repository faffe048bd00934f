package guard_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/models"
)

// BenchmarkGuards measures the cost of authentication with a JWT, rules and quotas per call.
func BenchmarkGuards(b *testing.B) {
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	jwk := jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "ES256", Use: "sig"}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk.Public()}})
	must(err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jwk}, nil)
	must(err)
	claims, err := json.Marshal(map[string]any{"iss": "https://issuer.example", "aud": "locket", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"dev", "test"}})
	must(err)
	signed, err := signer.Sign(claims)
	must(err)
	jwt, err := signed.CompactSerialize()
	must(err)
	folder, log := b.TempDir(), slog.New(slog.DiscardHandler)
	must(os.WriteFile(filepath.Join(folder, "keys"), keys, 0o600))
	must(os.WriteFile(filepath.Join(folder, "rules"), []byte(`
rules:
  - {group: "oidc:ops", may: [all], resource_prefix: ""}
  - {identity_prefix: "oidc:", may: [read], resource_prefix: ""}
  - {identity: "oidc:alice", may: [hold], resource_prefix: "deploy/"}
quotas:
  - {everybody: true, requests_per_second: 100000000}
`), 0o600))
	authenticator, err := authn.New(authn.Config{OIDC: authn.OIDC{
		Issuers: []authn.Issuer{{Name: "oidc", URL: "https://issuer.example"}}, Audience: "locket", GroupsClaim: "groups", KeyFile: filepath.Join(folder, "keys"),
	}}, follow.NewSet(log), log)
	must(err)
	rules, err := follow.Open("the rules", follow.One(auth.LoadRules), filepath.Join(folder, "rules"))
	must(err)
	guards := []grpcserver.Guard{guard.Authenticate(authenticator, rules.Current, log), guard.Authorize(), guard.Limit()}
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer "+jwt, "uuid", "x", "user-agent", "y", ":authority", "z", "content-type", "application/grpc"))
	var through func(context.Context, int, *grpcserver.Call) error
	through = func(ctx context.Context, i int, call *grpcserver.Call) error {
		if i == len(guards) {
			return nil
		}
		return guards[i](ctx, call, func(ctx context.Context) error { return through(ctx, i+1, call) })
	}
	b.ReportAllocs()
	for b.Loop() {
		must(through(ctx, 0, &grpcserver.Call{FullMethod: models.Locket_Lock_FullMethodName}))
	}
}
