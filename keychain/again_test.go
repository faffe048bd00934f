package keychain_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/keychain"
)

// TestClaimAgain: once a caller has given up a claim, the next claim can begin, even if the worker is not done.
func TestClaimAgain(t *testing.T) {
	for name, giveUp := range map[string]func(t *testing.T, kc *keychain.Keychain, ctx context.Context, cancel func()){
		"while it waits": func(t *testing.T, kc *keychain.Keychain, ctx context.Context, cancel func()) {
			ended := make(chan error)
			go func() {
				_, err := kc.Claim(ctx, "r")
				ended <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
		"by a release that nobody waits for": func(t *testing.T, kc *keychain.Keychain, ctx context.Context, cancel func()) {
			c, err := kc.Claim(t.Context(), "r")
			must(t, err)
			cancel()
			released := make(chan error)
			go func() { released <- c.Release(ctx) }()
			synctest.Wait()
			if err := <-released; !errors.Is(err, context.Canceled) || c.Held() {
				t.Errorf("held %t: %v", c.Held(), err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
				slow := &slowLog{when: "client requests release", proceed: make(chan struct{})}
				kc := connect(keychain.WithLogger(slog.New(slow)))
				if name == "while it waits" {
					defer s.free(s.take("r", time.Hour))
				}
				ctx, cancel := context.WithCancel(t.Context())
				giveUp(t, kc, ctx, cancel)
				again := make(chan error)
				ctx, cancel = context.WithCancel(t.Context())
				go func() {
					_, err := kc.Claim(ctx, "r")
					again <- err
				}()
				synctest.Wait()
				cancel()
				if err := <-again; !errors.Is(err, context.Canceled) {
					t.Errorf("the claim after one that was given up: %v", err)
				}
				close(slow.proceed)
				must(t, kc.Close())
			})
		})
	}
}

// TestReleaseAgain: releasing twice is not an error, even if the context is done.
func TestReleaseAgain(t *testing.T) {
	bubble(t, func(t *testing.T, _ *nessyServer, connect func(...keychain.Option) *keychain.Keychain) {
		kc := connect()
		c := claim(t, kc, "r")
		must(t, c.Release(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			must(t, c.Release(ctx))
		}
		must(t, kc.Close())
	})
}

// slowLog is a logger that holds the worker up when something happens to a claim.
type slowLog struct {
	when    string
	proceed chan struct{}
}

func (*slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *slowLog) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *slowLog) WithGroup(string) slog.Handler          { return l }

func (l *slowLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" && a.Value.String() == l.when {
			<-l.proceed
		}
		return true
	})
	return nil
}
