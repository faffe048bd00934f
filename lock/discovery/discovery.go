// Package discovery resolves names for gRPC clients: servers announce their addresses as presences, and clients
// connect to them.
package discovery

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/resolver"

	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/internal/feed"
)

// NewResolver returns a resolver for grpc.WithResolvers. A target "locket:///PREFIX" resolves to the values of the
// presences under the prefix, as they come and go. While no Locket server can be reached, the addresses do not change.
func NewResolver(client *lock.Client) resolver.Builder { return builder{client} }

type builder struct{ client *lock.Client }

// Scheme implements resolver.Builder.
func (builder) Scheme() string { return "locket" }

func (b builder) Build(target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &discovered{cancel: cancel}
	r.tasks.Go(func() { b.follow(ctx, target.Endpoint(), cc) })
	return r, nil
}

// follow reports the addresses to a connection until the context is done.
func (b builder) follow(ctx context.Context, prefix string, cc resolver.ClientConn) {
	var reported []string
	for first := true; ctx.Err() == nil; {
		set, err := lock.Presences(ctx, b.client, prefix)
		for err == nil {
			if now := addresses(set.All()); first || !slices.Equal(now, reported) {
				reported, first = now, false
				_ = cc.UpdateState(resolver.State{Endpoints: endpoints(now)}) // the balancer's state, which asks again by itself
			}
			_, err = set.Next(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		cc.ReportError(err)
		_ = periodic.Pause(ctx, feed.MaxPause)
	}
}

// addresses returns the announced addresses, sorted and without duplicates.
func addresses(presences []lock.PresenceInfo) []string {
	var all []string
	for _, p := range presences {
		if p.Value != "" {
			all = append(all, p.Value)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// endpoints returns one endpoint for each address.
func endpoints(addresses []string) []resolver.Endpoint {
	all := make([]resolver.Endpoint, len(addresses))
	for i, address := range addresses {
		all[i].Addresses = []resolver.Address{{Addr: address, ServerName: address}}
	}
	return all
}

// discovered is the resolver of one connection.
type discovered struct {
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// ResolveNow implements resolver.Resolver. The addresses are always the latest that are known.
func (*discovered) ResolveNow(resolver.ResolveNowOptions) {}

func (r *discovered) Close() {
	r.cancel()
	r.tasks.Wait()
}
