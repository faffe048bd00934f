package handlers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/locket-service/locket/models"
)

// TestExpiryWithWaiter: a waiter is granted the resource within 100 ms after the deadline, and not before.
func TestExpiryWithWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for i := range 5 { // the deadline falls at different points of the sweep's interval
			time.Sleep(13 * time.Millisecond)
			begin := time.Now()
			holder, waiter := number("holder", i), number("waiter", i)
			s.create(t, "r", holder, 1)
			s.create(t, "r", waiter, 60)
			c := answered(t, s.await(t, waiter, 0), active)
			if took := time.Since(begin); took < time.Second || took > 1100*time.Millisecond {
				t.Errorf("granted after %s", took)
			}
			was := s.get(t, holder)
			if was.GetStatus() != expired || c.GetToken() <= was.GetToken() {
				t.Errorf("the holder is %v, the next %v", was, c)
			}
			ended, granted := was.GetStatusHistory()[2], c.GetStatusHistory()[1]
			if ended.GetStatus() != expired || !ended.GetTimestamp().AsTime().Equal(granted.GetTimestamp().AsTime()) {
				t.Errorf("expired %v, granted %v", ended, granted)
			}
			s.end(t, waiter, released)
		}
	})
}

// TestExpiryWithoutWaiter: an uncontested lease expires within a second.
func TestExpiryWithoutWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.lock(t, "k", "jim", 1)
		s.create(t, "r", "a", 1)
		time.Sleep(time.Second - time.Microsecond)
		synctest.Wait()
		near(t, "ttl at the end", s.get(t, "a").GetTtl(), 1e-6)
		time.Sleep(time.Second + time.Microsecond)
		synctest.Wait()
		if c := s.get(t, "a"); c.GetStatus() != expired || c.Ttl != nil {
			t.Errorf("a second later: %v", c)
		}
		_, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"})
		isError(t, err, models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
		all, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
		must(t, err)
		if len(all.GetResources()) != 0 {
			t.Errorf("fetched all %v", all.GetResources())
		}
	})
}

// TestLateRenewal: a claim past its TTL may still be renewed if nobody has taken the resource.
func TestLateRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		token, byToken := s.lock(t, "k", "jim", 1), s.lock(t, "l", "jim", 1)
		s.create(t, "r", "a", 1)
		time.Sleep(1400 * time.Millisecond)
		synctest.Wait()
		near(t, "ttl past the deadline", s.get(t, "a").GetTtl(), 0)
		if again := s.lock(t, "k", "jim", 60); again != token {
			t.Errorf("token %d, renewed late %d", token, again)
		}
		must(t, s.renew(t, "l", "jim", byToken))
		c, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a", Ttl: ptr(60.0)})
		must(t, err)
		near(t, "ttl", c.GetTtl(), 60)
		time.Sleep(5 * time.Second)
		if got := s.get(t, "a"); got.GetStatus() != active || got.GetToken() != c.GetToken() {
			t.Errorf("later: %v", got)
		}
	})
}

// TestTooLate: the next caller takes over a claim that is due, at once.
func TestTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		old := s.lock(t, "k", "jim", 1)
		s.create(t, "r", "a", 1)
		time.Sleep(time.Second)
		if token := s.lock(t, "k", "joe", 60); token <= old {
			t.Errorf("token %d after %d", token, old)
		}
		if c := s.create(t, "r", "b", 60); c.GetStatus() != active {
			t.Errorf("the next claim: %v", c)
		}
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "jim"), TtlInSeconds: 60})
		isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
		_, err = s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a", Ttl: ptr(60.0)})
		wantReason(t, err, "WRONG_STATUS")
		isError(t, s.release(t, "k", "jim", old), models.ErrLockCollision, "LOCK_COLLISION")
		isError(t, s.renew(t, "k", "jim", old), models.ErrLockCollision, "LOCK_COLLISION")
		time.Sleep(time.Minute + time.Second) // joe's lease is over, too, and nobody wants the lock
		isError(t, s.renew(t, "k", "jim", old), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	})
}

// TestNotYet: a lease never ends early.
func TestNotYet(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.lock(t, "k", "jim", 1)
		time.Sleep(time.Second - time.Microsecond)
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "joe"), TtlInSeconds: 60})
		isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
		time.Sleep(time.Microsecond)
		s.lock(t, "k", "joe", 60)
	})
}

// TestRenewal: a claim that is renewed in time outlives its first TTL, even when others wait.
func TestRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := s.create(t, "r", "a", 1)
		s.create(t, "r", "b", 60)
		for range 5 {
			time.Sleep(900 * time.Millisecond)
			_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a", Ttl: ptr(1.0)})
			must(t, err)
		}
		if c := s.get(t, "a"); c.GetStatus() != active || c.GetToken() != first.GetToken() {
			t.Errorf("renewed: %v", c)
		}
		_, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "a", Ttl: ptr(0.0)})
		must(t, err)
		time.Sleep(100 * time.Millisecond)
		if c := s.get(t, "b"); c.GetStatus() != active {
			t.Errorf("a tenth of a second after a TTL of 0 the next is %v", c)
		}
	})
}

// TestWaiterBehindExpiredHolder: the next read of the queue grants the resource to the waiter.
func TestWaiterBehindExpiredHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		s.create(t, "r", "a", 1)
		s.create(t, "r", "b", 60)
		time.Sleep(time.Second)
		c, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: "b", Status: active})
		must(t, err)
		if c.GetStatus() != active || s.get(t, "a").GetStatus() != expired {
			t.Errorf("got %v", c)
		}
	})
}

// TestShared: many claims share a resource, and none overtakes another.
func TestShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		statuses := func() (text string) {
			for _, c := range s.list(t, &models.ListClaimsRequest{}).GetClaims() {
				text += c.GetId() + c.GetStatus().String()[len("STATUS_"):][:1] + " "
			}
			return text
		}
		check := func(when, want string) {
			t.Helper()
			if got := statuses(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		for _, c := range []struct {
			id     string
			ttl    float64
			shared bool
		}{{"1", 10, true}, {"2", 10, true}, {"3", 1, false}, {"4", 10, true}, {"5", 10, true}, {"6", 10, false}} {
			var mode []func(*models.CreateClaimRequest)
			if c.shared {
				mode = append(mode, shared)
			}
			s.create(t, "r", c.id, c.ttl, mode...)
			time.Sleep(time.Microsecond)
		}
		check("made", "1A 2A 3W 4W 5W 6W ")
		s.end(t, "1", released)
		check("one reader less", "1R 2A 3W 4W 5W 6W ")
		s.end(t, "2", released)
		check("the writer's turn", "1R 2R 3A 4W 5W 6W ")
		time.Sleep(1100 * time.Millisecond)
		check("the writer expired", "1R 2R 3E 4A 5A 6W ")
		s.end(t, "6", aborted)
		s.create(t, "r", "7", 10, shared)
		check("nobody before the next reader", "1R 2R 3E 4A 5A 6A 7A ")
		time.Sleep(11 * time.Second)
		check("all expired", "1R 2R 3E 4E 5E 6A 7E ")
	})
}

// TestOutage: time without a server does not count.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		first := startIn(t, folder)
		first.create(t, "r", "a", 2)
		time.Sleep(time.Second)
		first.stop()
		time.Sleep(time.Hour)
		second := startIn(t, folder)
		c := second.get(t, "a")
		if c.GetStatus() != active || c.GetTtl() < 1 || c.GetTtl() > 1.25 {
			t.Errorf("after an hour without a server: %v", c)
		}
		time.Sleep(2 * time.Second)
		if c := second.get(t, "a"); c.GetStatus() != expired {
			t.Errorf("two seconds later: %v", c)
		}
	})
}
