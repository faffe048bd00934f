package lock_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// TestDefaultOwner: a runner without an owner gets a unique one, which names host and process. WithOwner replaces any owner.
func TestDefaultOwner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		host, err := os.Hostname()
		must(t, err)
		claim := &models.CreateClaimRequest{Resource: "c"}
		seen := make(map[string]bool)
		for _, r := range []*lock.Runner{
			lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewPresenceRunner(w.rpc(), resource("k", ""), ttl, retry),
			lock.NewClaimRunner(w.rpc(), claim),
		} {
			if owner := r.Owner(); seen[owner] || !strings.HasPrefix(owner, host+"/") {
				t.Errorf("the owner %q", owner)
			}
			seen[r.Owner()] = true
			p := ifrit.Invoke(r)
			w.holds(r.Owner(), map[bool]string{true: "k", false: "c"}[r.ClaimID() == ""])
			must(t, end(p))
		}
		for _, r := range []*lock.Runner{
			lock.NewLockRunner(w.rpc(), resource("k", "a"), ttl, retry, lock.WithOwner("b")),
			lock.NewClaimRunner(w.rpc(), claim, lock.WithOwner("b")),
		} {
			if r.Owner() != "b" {
				t.Errorf("the owner %q, want b", r.Owner())
			}
		}
		if claim.GetOwner() != "" {
			t.Error("the caller's request was changed")
		}
	})
}

// TestOwnerIsOneParty: two runners with the same owner both hold a lock; with the default owner one of them does.
func TestOwnerIsOneParty(t *testing.T) {
	for owner, want := range map[string]bool{"host-1": true, "": false} {
		inWorld(t, func(t *testing.T, w *world) {
			old := ifrit.Invoke(lock.NewLockRunner(w.rpc(), resource("k", owner), ttl, retry))
			next := ifrit.Background(lock.NewLockRunner(w.rpc(), resource("k", owner), ttl, retry))
			time.Sleep(time.Minute)
			if both := isReady(next); both != want {
				t.Errorf("with the owner %q both hold: %t, want %t", owner, both, want)
			}
			must(t, end(next))
			err := end(old)
			if want && errors.Is(err, lock.ErrLost) { // next has released what both held
				err = nil
			}
			must(t, err)
		})
	}
}

// TestRunTwice: a second Run of a runner that runs is refused, and does not affect the first one. After its end a runner may run
// again.
func TestRunTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := lock.NewLockRunner(w.rpc(), resource("k", ""), ttl, retry)
		both := lock.NewJoint(
			lock.NewLockRunner(w.rpc(), resource("a", ""), ttl, retry),
			w.claim("b", models.Mode_MODE_EXCLUSIVE))
		for _, r := range []ifrit.Runner{one, both, w.claim("c", models.Mode_MODE_SHARED)} {
			for range 2 {
				p := ifrit.Invoke(r)
				if gone, err := exited(ifrit.Background(r)); !gone || !errors.Is(err, lock.ErrRunning) {
					t.Fatalf("the second run ended: %t, %v", gone, err)
				}
				time.Sleep(2 * ttl)
				if gone, err := exited(p); gone {
					t.Errorf("the first run ended: %v", err)
				}
				must(t, end(p))
			}
		}
		synctest.Wait()
		if _, held := one.Held(); held {
			t.Error("held after the end")
		}
	})
}
