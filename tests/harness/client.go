package harness

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// Lock takes or renews a lock, and fails the test if that is refused. Like Create, Release and ListAll it is Answered.
func Lock(t *testing.T, client models.LocketClient, key, owner string, ttl time.Duration) (token uint64) {
	t.Helper()
	token, err := Answered(t, func() (uint64, error) { return TryLock(t, client, key, owner, ttl) })
	if err != nil {
		t.Fatalf("Lock %q: %v", key, err)
	}
	return token
}

// TryLock takes or renews a lock, and returns its fencing token or the error.
func TryLock(t *testing.T, client models.LocketClient, key, owner string, ttl time.Duration) (token uint64, err error) {
	t.Helper()
	resp, err := client.Lock(t.Context(), &models.LockRequest{
		Resource:     &models.Resource{Key: key, Owner: owner, TypeCode: models.TypeCode_LOCK},
		TtlInSeconds: int64(ttl / time.Second),
	})
	return resp.GetToken(), err
}

// Create makes a claim.
func Create(t *testing.T, client models.LocketClient, key, id string, ttl time.Duration) *models.Claim {
	t.Helper()
	found, err := Answered(t, func() (*models.Claim, error) {
		return client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: key, Id: id, Owner: id, Ttl: proto.Float64(ttl.Seconds())})
	})
	if err != nil {
		t.Fatalf("CreateClaim %q: %v", key, err)
	}
	return found
}

// Renew renews a claim with a TTL.
func Renew(t *testing.T, client models.LocketClient, id string, ttl time.Duration) (*models.Claim, error) {
	t.Helper()
	return client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Ttl: proto.Float64(ttl.Seconds())})
}

// Release releases a claim.
func Release(t *testing.T, client models.LocketClient, id string) {
	t.Helper()
	_, err := Answered(t, func() (*models.Claim, error) {
		return client.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Status: models.Status_STATUS_RELEASED})
	})
	if err != nil {
		t.Fatalf("release %q: %v", id, err)
	}
}

// ListAll returns all claims.
func ListAll(t *testing.T, client models.LocketClient) (all []*models.Claim) {
	t.Helper()
	for token := ""; ; {
		list, err := Answered(t, func() (*models.ListClaimsResponse, error) {
			return client.ListClaims(t.Context(), &models.ListClaimsRequest{Limit: proto.Uint32(1000), PageToken: token})
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list.GetClaims()...)
		if token = list.GetNextPageToken(); token == "" {
			return all
		}
	}
}
