//go:build chaos

package robustness_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// probes are a client of each server that takes and releases locks of its own, one after the other, and repeats a call until it has
// an answer.
type probes struct {
	t      *testing.T
	load   *together
	report *chaosReport
	began  time.Time
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	calls []probed
}

// probed is a lock that was taken and released through a server, with all attempts.
type probed struct {
	server     int
	begin, end time.Duration // since the beginning; end is 0 while it is under way
}

func newProbes(t *testing.T, load *together, r *chaosReport) *probes {
	return &probes{t: t, load: load, report: r, began: time.Now()}
}

func (p *probes) now() time.Duration { return time.Since(p.began) }

// begin begins to probe servers.
func (p *probes) begin(servers []*fixtures.Locket) {
	p.t.Helper()
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	for n, s := range servers {
		soon := grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 80 * time.Millisecond}, MinConnectTimeout: 2 * time.Second})
		client := models.NewLocketClient(dial(p.t, s.Address(), append(p.load.DialOptions(), soon)))
		p.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				p.probe(n, i, client)
				harness.Think(20 * time.Millisecond)
			}
		})
	}
}

func (p *probes) stop() {
	p.cancel()
	p.done.Wait()
}

// probe takes a lock and releases it.
func (p *probes) probe(server, i int, client models.LocketClient) {
	p.mu.Lock()
	at := len(p.calls)
	p.calls = append(p.calls, probed{server: server, begin: p.now()})
	p.mu.Unlock()
	resource := &models.Resource{Key: fmt.Sprintf("probe-%d-%d", server, i%10), Owner: fmt.Sprintf("probe-%d-%d", server, i), TypeCode: models.TypeCode_LOCK}
	p.insist(func(ctx context.Context) error {
		_, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: int64(claimTTL.Seconds())}) // an attempt that was given up may come late
		return err
	})
	p.insist(func(ctx context.Context) error {
		_, err := client.Release(ctx, &models.ReleaseRequest{Resource: resource})
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[at].end = p.now()
	p.report.served()
}

// insist repeats a call until it is answered.
func (p *probes) insist(call func(context.Context) error) {
	for end := time.Now().Add(harness.HangTimeout); time.Now().Before(end); harness.Think(20 * time.Millisecond) { // real time: between two attempts
		ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
		err := call(ctx)
		cancel()
		if code := status.Code(err); code == codes.OK || code == codes.NotFound || code == codes.AlreadyExists {
			return
		}
	}
}

// longest returns the longest time that a call through a server took that was under way since a moment. Some servers do not count.
func (p *probes) longest(since time.Duration, except []int) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.end > since && !slices.Contains(except, c.server) {
			longest = max(longest, c.end-c.begin)
		}
	}
	return longest
}

// serve waits until a call that begins now has been answered through each server.
func (p *probes) serve(t *testing.T) {
	t.Helper()
	since := p.now()
	harness.Eventually(t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		served := make(map[int]bool)
		for _, c := range p.calls {
			if c.begin > since && c.end != 0 {
				served[c.server] = true
			}
		}
		if len(served) < 3 {
			return fmt.Errorf("only these serve: %v", served)
		}
		return nil
	})
}
