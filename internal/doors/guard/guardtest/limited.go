// Package guardtest has guards for tests of other packages.
package guardtest

import (
	"context"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/internal/rules/access"
)

// Limited returns guards that take all callers for one identity, which may do everything within a quota.
func Limited(quota access.Quota) []grpcserver.Guard {
	caller := access.Caller{Identity: access.Identity{Name: "limited"}, Quota: &quota}
	known := func(ctx context.Context, _ *grpcserver.Call, next func(context.Context) error) error {
		return next(access.WithCaller(ctx, func() access.Caller { return caller }))
	}
	return []grpcserver.Guard{known, guard.Limit()}
}
