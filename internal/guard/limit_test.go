package guard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/access"
	"github.com/locket-service/locket/models"
)

// TestQuotaThatChanges: a stream keeps the quota that it began with while later calls have another one. Their requests are
// counted together: what one has taken comes back with time, and not because the other quota counts next.
func TestQuotaThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := Limit()
		ask := func(quota *access.Quota) bool {
			ctx := access.WithCaller(t.Context(), func() access.Caller {
				return access.Caller{Identity: access.Identity{Name: "credential:ci"}, Quota: quota}
			})
			err := limit(ctx, &grpcserver.Call{FullMethod: models.Locket_WhoAmI_FullMethodName}, func(context.Context) error { return nil })
			if err != nil && models.ReasonOf(err) != models.ReasonQuotaExceeded {
				t.Error(err)
			}
			return err == nil
		}
		before, after, unlimited := &access.Quota{Requests: 1, Burst: 10}, &access.Quota{Requests: 2, Burst: 10}, &access.Quota{Watches: 1}
		answered := func() (n int) {
			for range 50 {
				for _, quota := range []*access.Quota{before, after} {
					if ask(quota) {
						n++
					}
					if !ask(unlimited) {
						t.Error("a quota without requests per second limits them")
					}
				}
			}
			return n
		}
		if n := answered(); n != 10 {
			t.Errorf("%d requests were answered at once, want 10", n)
		}
		time.Sleep(3 * time.Second)
		if n := answered(); n < 3 || n > 6 {
			t.Errorf("%d requests were answered after 3 s, want 3 to 6", n)
		}
		time.Sleep(time.Minute)
		if n := answered(); n != 10 {
			t.Errorf("%d requests were answered after a pause, want 10", n)
		}
	})
}
