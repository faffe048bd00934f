package harness

import (
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// proxied returns a fresh database behind a proxy.
func proxied(t *testing.T) (database string, proxy *fixtures.Proxy) {
	t.Helper()
	config, err := mysql.ParseDSN(fixtures.MySQL(t))
	must(t, err)
	proxy = fixtures.NewProxy(t, config.Addr)
	config.Addr = proxy.Addr()
	return "mysql:" + config.FormatDSN(), proxy
}

// lock takes or renews a lock and fails the test when that is refused.
func lock(t *testing.T, client models.LocketClient, key, owner string, ttl time.Duration) (token uint64) {
	t.Helper()
	token, err := tryLock(t, client, key, owner, ttl)
	if err != nil {
		t.Fatalf("Lock %q: %v", key, err)
	}
	return token
}

func tryLock(t *testing.T, client models.LocketClient, key, owner string, ttl time.Duration) (token uint64, err error) {
	t.Helper()
	resp, err := client.Lock(t.Context(), &models.LockRequest{
		Resource:     &models.Resource{Key: key, Owner: owner, TypeCode: models.TypeCode_LOCK},
		TtlInSeconds: int64(ttl / time.Second),
	})
	return resp.GetToken(), err
}

// create makes a claim.
func create(t *testing.T, client models.LocketClient, key, id string, ttl time.Duration) *models.Claim {
	t.Helper()
	found, err := client.CreateClaim(t.Context(), &models.CreateClaimRequest{
		Resource: key, Id: id, Owner: id, Ttl: proto.Float64(ttl.Seconds()),
	})
	if err != nil {
		t.Fatalf("CreateClaim %q: %v", key, err)
	}
	return found
}

func renew(t *testing.T, client models.LocketClient, id string, ttl time.Duration) (*models.Claim, error) {
	t.Helper()
	return client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Ttl: proto.Float64(ttl.Seconds())})
}

func release(t *testing.T, client models.LocketClient, id string) {
	t.Helper()
	_, err := client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_RELEASED})
	if err != nil {
		t.Fatalf("release %q: %v", id, err)
	}
}
