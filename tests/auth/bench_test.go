package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
)

const benchRules = `
rules:
  - {group: "oidc:ops", may: [all], resource_prefix: ""}
  - {identity_prefix: "oidc:", may: [read], resource_prefix: ""}
  - {identity: "oidc:alice", may: [hold], resource_prefix: "deploy/"}
  - {everybody: true, may_not: [hold], resource: "deploy/frozen"}
`

// BenchmarkCost measures lock and release by 64 callers at two servers: one with rules and JWTs,
// one without authentication. Rounds take turns. It reports the operations a second of both, and the
// median of the ratios of the rounds that follow each other.
func BenchmarkCost(b *testing.B) {
	const callers, length = 64, time.Second
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	jwk := jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "ES256", Use: "sig"}
	keys, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk.Public()}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jwk}, nil)
	if err != nil {
		b.Fatal(err)
	}
	claims, _ := json.Marshal(map[string]any{"iss": "https://issuer.example", "aud": "locket", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"dev", "test"}})
	signed, err := signer.Sign(claims)
	if err != nil {
		b.Fatal(err)
	}
	jwt, _ := signed.CompactSerialize()
	run := func(args ...string) models.LocketClient {
		server := fixtures.StartLocket(b, "embedded:"+filepath.Join(b.TempDir(), "data"), args...)
		conn, err := grpc.NewClient(server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		return models.NewLocketClient(conn)
	}
	off := run()
	on := run("--oidc-issuers", "https://issuer.example", "--oidc-audience", "locket", "--oidc-groups-claim", "groups",
		"--oidc-keys", write(b, "keys.json", string(keys)), "--auth-rules", write(b, "rules.yaml", benchRules))
	round := func(client models.LocketClient, ctx context.Context) float64 {
		var done sync.WaitGroup
		counts := make([]int, callers)
		begin := time.Now()
		for caller := range callers {
			done.Go(func() {
				resource := &models.Resource{Key: fmt.Sprintf("deploy/%d", caller), Owner: "o"}
				for time.Since(begin) < length { // real time: a benchmark
					_, lockErr := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60})
					_, releaseErr := client.Release(ctx, &models.ReleaseRequest{Resource: resource})
					if lockErr != nil || releaseErr != nil {
						b.Errorf("lock: %v, release: %v", lockErr, releaseErr)
						return
					}
					counts[caller] += 2
				}
			})
		}
		done.Wait()
		total := 0
		for _, n := range counts {
			total += n
		}
		return float64(total) / time.Since(begin).Seconds() // real time: a benchmark
	}
	with := metadata.AppendToOutgoingContext(b.Context(), "authorization", "Bearer "+jwt)
	round(off, b.Context())
	round(on, with)
	var ratios, offs, ons []float64
	for b.Loop() {
		before := round(off, b.Context())
		secured := round(on, with)
		after := round(off, b.Context())
		ratios, offs, ons = append(ratios, 2*secured/(before+after)), append(offs, before, after), append(ons, secured)
	}
	median := func(values []float64) float64 { slices.Sort(values); return values[len(values)/2] }
	b.ReportMetric(median(offs), "off/s")
	b.ReportMetric(median(ons), "on/s")
	b.ReportMetric(median(ratios), "on/off")
}
