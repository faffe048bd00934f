package guard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/doors/authn"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCredentialsOfWaitingCalls: a call that waits ends with its credentials, and says so. One that is carried out at
// once is carried out.
func TestCredentialsOfWaitingCalls(t *testing.T) {
	for method, ends := range map[string]bool{models.Locket_AwaitClaim_FullMethodName: true, models.Locket_CreateClaim_FullMethodName: false} {
		synctest.Test(t, func(t *testing.T) {
			credential, hash := auth.NewCredential()
			_, other := auth.NewCredential()
			file := filepath.Join(t.TempDir(), "credentials.yaml")
			accept := func(hash string) {
				must(t, os.WriteFile(file, fmt.Appendf(nil, "credentials:\n  - {name: ci, hash: %q}\n", hash), 0o600))
			}
			accept(hash)
			log := slog.New(slog.DiscardHandler)
			files := follow.NewSet(log)
			a, err := authn.New(authn.Config{CredentialFile: file}, files, log)
			must(t, err)
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+credential))
			err = Authenticate(a, auth.DefaultRules, log)(ctx, &grpcserver.Call{FullMethod: method}, func(ctx context.Context) error {
				time.Sleep(3 * CheckInterval)
				if ctx.Err() != nil {
					t.Errorf("%s: it ends while its credentials hold", method)
				}
				accept(other)
				for range 3 {
					files.Look(t.Context())
					time.Sleep(follow.Interval)
				}
				time.Sleep(CheckInterval)
				return ctx.Err()
			})
			if got := models.ReasonOf(err) == models.ReasonCredentialsEnded; got != ends || !ends && err != nil {
				t.Errorf("%s: %v", method, err)
			}
		})
	}
}

// TestRulesOfACall: the rules change all the time. A unary call uses the rules from its start, however often it asks
// for its caller; a stream always uses the current ones.
func TestRulesOfACall(t *testing.T) {
	t.Parallel()
	credential, hash := auth.NewCredential()
	file := filepath.Join(t.TempDir(), "credentials.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "credentials:\n  - {name: ci, hash: %q}\n", hash), 0o600))
	log := slog.New(slog.DiscardHandler)
	a, err := authn.New(authn.Config{CredentialFile: file}, follow.NewSet(log), log)
	must(t, err)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+credential))
	for method, stream := range map[string]bool{models.Locket_CreateClaim_FullMethodName: false, models.Locket_Watch_FullMethodName: true} {
		var inForce *auth.Rules
		rules := func() *auth.Rules {
			inForce = auth.DefaultRules()
			return inForce
		}
		var first *access.Rules
		ask := func(ctx context.Context) error {
			first = access.CallerOf(ctx).Rules
			for range 2 {
				last := access.CallerOf(ctx).Rules
				if stream && (last == first || last != inForce.Rules) {
					t.Errorf("%s: the rules are not those in force", method)
				}
				if !stream && last != first {
					t.Errorf("%s: the rules are not those with which it began", method)
				}
			}
			return nil
		}
		must(t, Authenticate(a, rules, log)(ctx, &grpcserver.Call{FullMethod: method, Stream: stream}, ask))
		if first == nil {
			t.Errorf("%s: there are no rules", method)
		}
	}
}
