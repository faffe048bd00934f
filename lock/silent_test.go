package lock_test

import (
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestClaimBehindSilence: a claim is granted while its runner cannot be reached. When the network is back, the runner holds within the
// time that one call may take: by that claim, or by a new one if that has expired.
func TestClaimBehindSilence(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 40 * time.Second} {
		for _, silence := range []time.Duration{ttl / 4, 2 * ttl} {
			inWorld(t, func(t *testing.T, w *world) {
				expired := silence > ttl
				w.make(&models.CreateClaimRequest{Resource: "k", Id: "before", Ttl: proto.Float64(1e6)})
				r := lock.NewClaimRunner(w.rpc(), &models.CreateClaimRequest{Resource: "k", Id: "a", Ttl: proto.Float64(ttl.Seconds())})
				p := ifrit.Background(r)
				time.Sleep(3*ttl + ttl/3) // it waits, by many calls
				w.answering(hang)         // the answer to the call under way is lost,
				w.failing(hang)           // and no other request is sent
				must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: "before"})))
				time.Sleep(silence)
				if expired { // another claim was granted meanwhile
					w.make(&models.CreateClaimRequest{Resource: "k", Id: "between", Ttl: proto.Float64(1e6)})
					must(t, second(w.own().EndClaim(t.Context(), &models.EndClaimRequest{Id: "between"})))
				}
				w.answering(nil)
				w.failing(nil)
				begin := time.Now()
				<-p.Ready()
				took := time.Since(begin)
				t.Logf("TTL %s, silent for %s: it held %s later", ttl, silence, took)
				if took > ttl/2 {
					t.Errorf("TTL %s, silent for %s: it held only %s later", ttl, silence, took)
				}
				if anew := r.ClaimID() != "a"; anew != expired || w.status(r.ClaimID()) != models.Status_STATUS_ACTIVE {
					t.Errorf("TTL %s, silent for %s: the claim %q is %s", ttl, silence, r.ClaimID(), w.status(r.ClaimID()))
				}
				must(t, end(p))
			})
		}
	}
}
