//go:build soak

package robustness_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const (
	overloadTime = time.Minute
	// overloadConnections times overloadCallers requests are under way all the time. They are ten times as many as the 256 callers
	// of the benchmark, which about saturate a server.
	overloadConnections = 64
	overloadCallers     = 40
	// overloadHolders is the number of callers that hold locks and renew them after a third of holderTTL.
	overloadHolders = 50
	holderTTL       = 15 * time.Second
	// overloadMemory is the memory that a server may use.
	overloadMemory = 1 << 30
)

// overload counts the outcomes of new requests.
type overload struct {
	made, refused, late, other atomic.Int64
}

// claims makes claims of new names until ctx ends, without a pause.
func (o *overload) claims(ctx context.Context, client models.LocketClient, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_, err := client.CreateClaim(call, &models.CreateClaimRequest{
			Resource: fmt.Sprintf("overload/%s/%d", name, n), Ttl: proto.Float64(30), UserData: proto.String(`"` + name + `"`),
		})
		cancel()
		switch status.Code(err) {
		case codes.OK:
			o.made.Add(1)
		case codes.ResourceExhausted:
			o.refused.Add(1)
			time.Sleep(time.Second) // as the error says
		case codes.DeadlineExceeded, codes.Unavailable:
			o.late.Add(1)
		default:
			o.other.Add(1)
		}
	}
}

// hold takes a lock, renews it until ctx ends, and fails the test when it is lost. Callers with odd numbers renew
// without the token, as Cloud Foundry's clients do.
func holdThrough(ctx context.Context, t *testing.T, client models.LocketClient, n int) {
	resource := &models.Resource{Key: fmt.Sprint("holder/", n), Owner: fmt.Sprint("owner ", n), TypeCode: models.TypeCode_LOCK}
	request := &models.LockRequest{Resource: resource, TtlInSeconds: int64(holderTTL / time.Second)}
	first, err := client.Lock(context.Background(), request)
	if err != nil {
		t.Errorf("holder %d: %v", n, err)
		return
	}
	if n%2 == 0 {
		request.Token = proto.Uint64(first.GetToken())
	}
	trusted := time.Now().Add(holderTTL)
	for ctx.Err() == nil {
		time.Sleep(holderTTL / 3)
		for attempt := time.Now(); ; {
			call, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			sent := time.Now()
			renewed, err := client.Lock(call, request)
			cancel()
			if err == nil && renewed.GetToken() == first.GetToken() {
				trusted = sent.Add(holderTTL)
				break
			}
			if err == nil || time.Now().After(trusted) {
				t.Errorf("holder %d has lost its lock after %v of tries: token %d, %v", n, time.Since(attempt), renewed.GetToken(), err)
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// TestSoakOverload sends far more requests than a server can carry out. The memory of the server stays bounded, holders keep their locks, and
// soon after the overload requests take as long as before.
func TestSoakOverload(t *testing.T) {
	oneByOne(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database, "--history-limit", "20000", "--history-minimum", "0s")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var holders, callers sync.WaitGroup
		holding := server.Client(t)
		for n := range overloadHolders {
			holders.Go(func() { holdThrough(ctx, t, holding, n) })
		}
		before := latency(t, server)
		load, end := context.WithTimeout(ctx, overloadTime)
		defer end()
		var o overload
		for c := range overloadConnections {
			client := server.Client(t)
			for n := range overloadCallers {
				callers.Go(func() { o.claims(load, client, fmt.Sprint(c, "/", n)) })
			}
		}
		most := 0.0
		for load.Err() == nil {
			time.Sleep(2 * time.Second)
			most = max(most, usage(t, server)["process_resident_memory_bytes"])
		}
		callers.Wait()
		ended := time.Now()
		var after time.Duration
		harness.Eventually(t, func() error {
			if after = latency(t, server); after > 4*before+50*time.Millisecond {
				return fmt.Errorf("a lock takes %v, before the load %v", after, before)
			}
			return nil
		})
		recovered := time.Since(ended)
		stop()
		holders.Wait()
		t.Logf("%d claims made, %d refused, %d too late, %d others; at most %.0f MiB; a lock took %v before and %v within %v after",
			o.made.Load(), o.refused.Load(), o.late.Load(), o.other.Load(), most/(1<<20), before, after, recovered.Round(time.Millisecond))
		if most > overloadMemory {
			t.Errorf("the server used %.0f MiB", most/(1<<20))
		}
		if o.made.Load() == 0 || o.other.Load() > 0 {
			t.Error("nothing was made, or there were errors of another kind")
		}
	})
}

// oneByOne runs a test on each engine, one after the other, so that they do not share the machine.
func oneByOne(t *testing.T, test func(t *testing.T, database string)) {
	for name, database := range harness.Engines() {
		t.Run(name, func(t *testing.T) { test(t, database(t)) })
	}
}

// latency returns the median time of a lock and its release.
func latency(t *testing.T, server *fixtures.Locket) time.Duration {
	t.Helper()
	client := server.Client(t)
	var took []time.Duration
	for n := range 21 {
		resource := &models.Resource{Key: fmt.Sprint("latency/", n), Owner: "probe", TypeCode: models.TypeCode_LOCK}
		begin := time.Now()
		_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
		took = append(took, time.Since(begin))
		if err != nil {
			continue
		}
		_, _ = client.Release(t.Context(), &models.ReleaseRequest{Resource: resource})
	}
	slices.Sort(took)
	return took[len(took)/2]
}
