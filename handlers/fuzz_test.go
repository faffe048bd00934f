package handlers_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// FuzzRequests sends arbitrary bytes as the request of each method: the answer is one that the service intends, and the
// server keeps running.
func FuzzRequests(f *testing.F) {
	for i, message := range []proto.Message{
		&models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o", Value: "v", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 1},
		&models.FetchRequest{Key: "k"},
		&models.ReleaseRequest{Resource: &models.Resource{Key: "k", Owner: "o"}, Token: ptr(uint64(math.MaxUint64))},
		&models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE},
		&models.CreateClaimRequest{Resource: "k", Id: "a", Ttl: ptr(1.0), UserData: ptr("{}"), Mode: models.Mode_MODE_SHARED},
		&models.GetClaimRequest{Id: "a"},
		&models.ListClaimsRequest{Resource: ptr("k"), Limit: ptr(uint32(5)), MinimumTtl: ptr(0.5), PageToken: "MSBh"},
		&models.UpdateClaimRequest{Id: "a", Status: active, Ttl: ptr(math.NaN())},
		&models.AwaitClaimRequest{Id: "a"},
		&models.EndClaimRequest{Id: "a", Reason: "why"},
		&models.GetQueueRequest{Resource: "k", Limit: ptr(uint32(5))},
		&models.ListResourcesRequest{Prefix: "k", Order: models.ResourceOrder_RESOURCE_ORDER_CONTENDED, PageToken: "YzEgaw"},
	} {
		data, err := proto.Marshal(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), data)
	}
	f.Add(uint8(0), slices.Concat(text(1, string(append(text(1, "k"), text(2, "o")...))), []byte{0x10, 1, 0x18, 1}))
	f.Add(uint8(0), text(1, string(text(1, "\xff"))))
	f.Add(uint8(8), []byte{0x12, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	s := start(f)
	s.create(f, "alive", "alive", 3600)
	never := []codes.Code{codes.Internal, codes.Unknown, codes.Unimplemented, codes.Unavailable, codes.DataLoss}
	f.Fuzz(func(t *testing.T, method uint8, message []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := s.raw(ctx, methods[int(method)%len(methods)], message)
		if slices.Contains(never, status.Code(err)) {
			t.Errorf("%s: %v", methods[int(method)%len(methods)], err)
		}
		if _, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "alive"}); err != nil {
			t.Fatalf("the server: %v", err)
		}
	})
}
