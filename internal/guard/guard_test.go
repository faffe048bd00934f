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
	"github.com/locket-service/locket/internal/auth"
	"github.com/locket-service/locket/internal/authn"
	"github.com/locket-service/locket/internal/follow"
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
