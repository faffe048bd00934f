package keychain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/tests/harness"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startLocket starts the real server.
func startLocket(t *testing.T) *fixtures.Locket {
	t.Helper()
	return fixtures.StartLocket(t, "embedded:"+filepath.Join(t.TempDir(), "data"))
}

// open returns a keychain that is closed when the test ends. By default it waits long for the end of its claims,
// because the server may be busy.
func open(t testing.TB, url string, options ...keychain.Option) *keychain.Keychain {
	t.Helper()
	kc, err := keychain.New(url, append([]keychain.Option{keychain.WithReleaseTimeout(harness.HangTimeout)}, options...)...)
	must(t, err)
	t.Cleanup(func() { _ = kc.Close() })
	return kc
}

// claim claims a resource, which must work.
func claim(t testing.TB, kc *keychain.Keychain, resource string, options ...keychain.ClaimOption) *keychain.Claim {
	t.Helper()
	c, err := kc.Claim(t.Context(), resource, options...)
	must(t, err)
	return c
}

// seen is a claim as a bystander sees it.
type seen struct {
	ID, Status, Mode string
	Owner            *string
	TTL              *float64
	Version          uint64
	Token            uint64
	UserData         json.RawMessage `json:"user_data"`
}

// look reads a claim.
func look(t testing.TB, url string) (s seen) {
	t.Helper()
	getJSON(t, url, &s)
	return s
}

// line reads the claims of a resource that have not ended.
func line(t testing.TB, base, resource string) (holders, waiters int) {
	t.Helper()
	var queue struct{ Holders, Waiters []seen }
	getJSON(t, base+"/v1/resources/"+resource+"/", &queue)
	return len(queue.Holders), len(queue.Waiters)
}

func getJSON(t testing.TB, url string, into any) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.HangTimeout}
	resp, err := client.Get(url)
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", url, resp.Status)
	}
	must(t, json.NewDecoder(resp.Body).Decode(into))
}

// soon returns once something is so.
func soon(t testing.TB, what string, so func() bool) {
	t.Helper()
	harness.Until(t, what, so)
}

func isDone(c *keychain.Claim) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// TestLocket uses the library as a program does, with the real server.
func TestLocket(t *testing.T) {
	t.Parallel()
	server := startLocket(t)
	url := "http://" + server.HTTPAddress()
	for name, test := range map[string]func(t *testing.T, url string){
		"life":           life,
		"contention":     contention,
		"fairness":       fairness,
		"once":           onceOnly,
		"shared":         shared,
		"cancelled":      cancelled,
		"timeout":        timeout,
		"revoked":        revoked,
		"lost before":    lostBeforeRelease,
		"renewed":        renewed,
		"refresh":        refresh,
		"validate":       validate,
		"close":          closing,
		"abort":          aborting,
		"refused":        refused,
		"waiter revoked": waiterRevoked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, url)
		})
	}
}

func life(t *testing.T, url string) {
	kc := open(t, url+"/")
	c := claim(t, kc, "life", keychain.WithTTL(30*time.Second), keychain.WithOwner("me"), keychain.WithUserData(map[string]any{"pid": 7}))
	s := look(t, c.URL())
	if s.Status != "active" || s.ID != c.ID() || s.Token != c.Token() || c.Token() == 0 || *s.Owner != "me" || string(s.UserData) != `{"pid":7}` || *s.TTL > 30 {
		t.Errorf("%+v; the claim is %s, token %d", s, c.ID(), c.Token())
	}
	if !c.Held() || isDone(c) || c.Err() != nil || c.Resource() != "life" {
		t.Error("not held")
	}
	must(t, c.Validate(t.Context()))
	must(t, c.Release(t.Context()))
	if c.Held() || !isDone(c) || !errors.Is(c.Err(), keychain.ErrReleased) || look(t, c.URL()).Status != "released" {
		t.Errorf("released: %v, %+v", c.Err(), look(t, c.URL()))
	}
	must(t, c.Release(t.Context())) // again
	if err := c.Validate(t.Context()); !errors.Is(err, keychain.ErrReleased) {
		t.Errorf("validate: %v", err)
	}
	if err := c.Refresh(t.Context(), 0); !errors.Is(err, keychain.ErrReleased) {
		t.Errorf("refresh: %v", err)
	}
	again := claim(t, kc, "life")
	if again.Token() <= c.Token() {
		t.Errorf("token %d after %d", again.Token(), c.Token())
	}
}

// contention: of many claims of one resource never two are active at once.
func contention(t *testing.T, url string) {
	const clients, rounds = 8, 5
	var all sync.WaitGroup
	var mu sync.Mutex // does not synchronize for the race detector: TryLock is the test
	last := uint64(0)
	for range clients {
		kc := open(t, url)
		all.Go(func() {
			for range rounds {
				c, err := kc.Claim(t.Context(), "contention", keychain.WithTTL(time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				if !mu.TryLock() {
					t.Error("two at once")
					return
				}
				if c.Token() <= last {
					t.Errorf("token %d after %d", c.Token(), last)
				}
				last = c.Token()
				time.Sleep(time.Millisecond) // real time: two at once would meet here
				mu.Unlock()
				if err := c.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// fairness: claims are active in their order, and soon, because no keychain pauses between two long polls.
func fairness(t *testing.T, url string) {
	first := claim(t, open(t, url), "fairness")
	const waiters = 5
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range waiters {
		kc := open(t, url)
		all.Go(func() {
			c, err := kc.Claim(t.Context(), "fairness")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := c.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		soon(t, "the next one waits", func() bool { _, n := line(t, url, "fairness"); return n == i+1 })
	}
	must(t, first.Release(t.Context()))
	all.Wait()
	for i, got := range order {
		if got != i {
			t.Errorf("the order: %v", order)
			break
		}
	}
}

// onceOnly: there is only one claim for each resource, held or wanted.
func onceOnly(t *testing.T, url string) {
	kc, other := open(t, url), open(t, url)
	held := claim(t, kc, "once")
	if _, err := kc.Claim(t.Context(), "once"); !errors.Is(err, keychain.ErrClaimed) {
		t.Errorf("held: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Claim(t.Context(), "once")
		waiting <- err
	}()
	soon(t, "the other waits", func() bool { _, n := line(t, url, "once"); return n == 1 })
	if _, err := other.Claim(t.Context(), "once"); !errors.Is(err, keychain.ErrClaimed) {
		t.Errorf("wanted: %v", err)
	}
	must(t, held.Release(t.Context()))
	must(t, <-waiting)
}

func shared(t *testing.T, url string) {
	for range 3 {
		c := claim(t, open(t, url), "shared", keychain.WithMode(keychain.Shared))
		if s := look(t, c.URL()); s.Mode != "shared" {
			t.Errorf("%+v", s)
		}
	}
	if n, _ := line(t, url, "shared"); n != 3 {
		t.Errorf("%d holders", n)
	}
}

// cancelled: a claim whose context is done is withdrawn, and may be claimed again at once.
func cancelled(t *testing.T, url string) {
	kc := open(t, url)
	held := claim(t, open(t, url), "cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		soon(t, "it waits", func() bool { _, n := line(t, url, "cancelled"); return n == 1 })
		cancel(errors.New("enough"))
	}()
	if _, err := kc.Claim(ctx, "cancelled"); err == nil || err.Error() != `claim "cancelled": enough` {
		t.Errorf("%v", err)
	}
	if _, err := kc.Claim(ctx, "cancelled"); err == nil {
		t.Error("claimed though the context is done")
	}
	soon(t, "it is withdrawn", func() bool { _, n := line(t, url, "cancelled"); return n == 0 })
	must(t, held.Release(t.Context()))
	claim(t, kc, "cancelled")
}

func timeout(t *testing.T, url string) {
	kc := open(t, url)
	claim(t, open(t, url), "timeout")
	begin := time.Now()
	_, err := kc.Claim(t.Context(), "timeout", keychain.WithTimeout(300*time.Millisecond))
	if took := time.Since(begin); !errors.Is(err, keychain.ErrTimeout) || took < 300*time.Millisecond { // real time: on no machine earlier
		t.Errorf("%v after %s", err, took)
	}
	soon(t, "it is withdrawn", func() bool { _, n := line(t, url, "timeout"); return n == 0 })
}

// lostBeforeRelease: a keychain that learns by its release that its claim was revoked has lost it; Close does not report that again.
func lostBeforeRelease(t *testing.T, url string) {
	kc := open(t, url)
	c := claim(t, kc, "lost", keychain.WithTTL(time.Minute))
	revoke(t, c.URL())
	if err := c.Release(t.Context()); !errors.Is(err, keychain.ErrLost) || !strings.Contains(err.Error(), "the claim was revoked") {
		t.Errorf("release: %v", err)
	}
	if err := kc.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// revoked: a keychain that learns by a renewal that its claim was revoked has lost it; the handler is called.
func revoked(t *testing.T, url string) {
	fatal := make(chan error, 1)
	kc := open(t, url, keychain.WithFatal(func(err error) { fatal <- err }))
	c := claim(t, kc, "revoked", keychain.WithTTL(time.Minute), keychain.WithRenewPeriod(200*time.Millisecond))
	revoke(t, c.URL())
	<-c.Done()
	var refused *keychain.AnswerError
	if err := c.Err(); !errors.Is(err, keychain.ErrLost) || !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !tells(err) || c.Held() {
		t.Errorf("lost: %v", err)
	}
	if err := <-fatal; !errors.Is(err, keychain.ErrLost) {
		t.Errorf("fatal: %v", err)
	}
	if err := c.Release(t.Context()); !errors.Is(err, keychain.ErrLost) {
		t.Errorf("release: %v", err)
	}
	claim(t, kc, "revoked")
}

// tells reports whether an error has the end of the claim and its reason.
func tells(err error) bool {
	return strings.Contains(err.Error(), "the claim was revoked (maintenance)")
}

func revoke(t testing.TB, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.HangTimeout}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, url, jsonBody(map[string]string{"status": "revoked", "reason": "maintenance"}))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("revoke: %s", resp.Status)
	}
}

// waiterRevoked: a claim that is revoked while it waits is a refusal.
func waiterRevoked(t *testing.T, url string) {
	claim(t, open(t, url), "waiter")
	failed := make(chan error, 1)
	kc := open(t, url)
	go func() {
		_, err := kc.Claim(t.Context(), "waiter")
		failed <- err
	}()
	var queue struct{ Waiters []struct{ URL string } }
	soon(t, "it waits", func() bool { getJSON(t, url+"/v1/resources/waiter/", &queue); return len(queue.Waiters) == 1 })
	revoke(t, queue.Waiters[0].URL)
	var refused *keychain.AnswerError
	if err := <-failed; !errors.As(err, &refused) || refused.Code != http.StatusBadRequest || !tells(err) {
		t.Errorf("%v", err)
	}
}

// renewed: a claim is renewed again and again.
func renewed(t *testing.T, url string) {
	c := claim(t, open(t, url), "renewed", keychain.WithTTL(time.Minute), keychain.WithRenewPeriod(100*time.Millisecond))
	for range 3 {
		last := *look(t, c.URL()).TTL
		soon(t, "it is renewed", func() bool {
			now := *look(t, c.URL()).TTL
			renewed := now > last
			last = now
			return renewed
		})
	}
	if !c.Held() {
		t.Fatalf("lost: %v", c.Err())
	}
	must(t, c.Validate(t.Context()))
}

// refresh: with another TTL, from now on.
func refresh(t *testing.T, url string) {
	c := claim(t, open(t, url), "refresh", keychain.WithTTL(time.Minute))
	must(t, c.Refresh(t.Context(), time.Hour))
	if s := look(t, c.URL()); *s.TTL < 3000 {
		t.Errorf("%v", *s.TTL)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := c.Refresh(t.Context(), 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, ttl := range []time.Duration{-1, time.Millisecond, 200 * 365 * 24 * time.Hour} {
		if err := c.Refresh(t.Context(), ttl); err == nil {
			t.Errorf("%s was taken", ttl)
		}
	}
	must(t, c.Validate(t.Context()))
}

// validate: finds out that the claim was revoked, long before the next renewal.
func validate(t *testing.T, url string) {
	c := claim(t, open(t, url), "validate", keychain.WithTTL(time.Hour))
	revoke(t, c.URL())
	if !c.Held() {
		t.Error("nobody can know yet")
	}
	if err := c.Validate(t.Context()); !errors.Is(err, keychain.ErrLost) || c.Held() {
		t.Errorf("%v; held: %t", err, c.Held())
	}
}

// closing ends all claims, held or waiting.
func closing(t *testing.T, url string) {
	kc, other := open(t, url), open(t, url)
	claim(t, other, "close-taken")
	var held []*keychain.Claim
	for i := range 20 {
		held = append(held, claim(t, kc, fmt.Sprint("close-", i)))
	}
	wanted := make(chan error, 1)
	go func() {
		_, err := kc.Claim(t.Context(), "close-taken")
		wanted <- err
	}()
	soon(t, "it waits", func() bool { _, n := line(t, url, "close-taken"); return n == 1 })
	must(t, kc.Close())
	if err := <-wanted; !errors.Is(err, keychain.ErrClosed) {
		t.Errorf("wanted: %v", err)
	}
	for _, c := range held {
		if s := look(t, c.URL()); s.Status != "released" || !errors.Is(c.Err(), keychain.ErrClosed) {
			t.Errorf("%+v, %v", s, c.Err())
		}
	}
	if _, n := line(t, url, "close-taken"); n != 0 {
		t.Errorf("%d wait", n)
	}
	if _, err := kc.Claim(t.Context(), "close-new"); !errors.Is(err, keychain.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
	must(t, kc.Close()) // again
}

func aborting(t *testing.T, url string) {
	kc := open(t, url)
	c := claim(t, kc, "abort")
	must(t, kc.Abort())
	if s := look(t, c.URL()); s.Status != "aborted" {
		t.Errorf("%+v", s)
	}
}

// refused: a request that the server refuses is an error at once, and the handler is called.
func refused(t *testing.T, url string) {
	fatal := make(chan error, 1)
	kc := open(t, url, keychain.WithFatal(func(err error) { fatal <- err }))
	_, err := kc.Claim(t.Context(), "refused", keychain.WithMode("brotherly"))
	var answer *keychain.AnswerError
	if !errors.As(err, &answer) || answer.Code != http.StatusBadRequest {
		t.Errorf("%v", err)
	}
	if err := <-fatal; !errors.As(err, &answer) {
		t.Errorf("fatal: %v", err)
	}
}

// TestOutages: the states of a claim while its server is unavailable.
func TestOutages(t *testing.T) {
	t.Parallel()
	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		server := startLocket(t)
		kc := open(t, "http://"+server.HTTPAddress())
		c := claim(t, kc, "r", keychain.WithTTL(5*time.Minute), keychain.WithRenewPeriod(100*time.Millisecond))
		must(t, server.Restart())
		before := look(t, c.URL()).Version
		soon(t, "it is renewed", func() bool { return look(t, c.URL()).Version > before })
		if !c.Held() {
			t.Fatalf("lost: %v", c.Err())
		}
		must(t, c.Validate(t.Context()))
		must(t, c.Release(t.Context()))
	})
	t.Run("lease over", func(t *testing.T) {
		t.Parallel()
		server := startLocket(t)
		kc := open(t, "http://"+server.HTTPAddress())
		c := claim(t, kc, "r", keychain.WithTTL(5*time.Second))
		must(t, server.Pause())
		begin, last := time.Now(), time.Now()
		soon(t, "it is lost", func() bool {
			at := time.Now()
			if c.Held() {
				last = at
			}
			return isDone(c)
		})
		if took := last.Sub(begin); took > 4750*time.Millisecond || !errors.Is(c.Err(), keychain.ErrLost) || !errors.Is(c.Err(), keychain.ErrTimeUp) {
			t.Errorf("after %s: %v", took, c.Err())
		}
		must(t, server.Resume())
		claim(t, kc, "r", keychain.WithTTL(time.Minute)) // behind the earlier one, until that expires
	})
	t.Run("down at first", func(t *testing.T) {
		t.Parallel()
		server := startLocket(t)
		server.Kill()
		kc, short := open(t, "http://"+server.HTTPAddress()), open(t, "http://"+server.HTTPAddress())
		_, err := short.Claim(t.Context(), "r", keychain.WithTimeout(300*time.Millisecond))
		if !errors.Is(err, keychain.ErrTimeout) {
			t.Errorf("%v", err)
		}
		must(t, short.Close()) // no claim can have been made
		started := make(chan error, 1)
		go func() { started <- server.Start() }()
		claim(t, kc, "r")
		must(t, <-started)
	})
	t.Run("close", func(t *testing.T) {
		t.Parallel()
		server := startLocket(t)
		kc := open(t, "http://"+server.HTTPAddress(), keychain.WithReleaseTimeout(time.Second))
		for i := range 10 {
			claim(t, kc, fmt.Sprint("r", i))
		}
		must(t, server.Pause())
		if err := kc.Close(); !errors.Is(err, keychain.ErrNotEnded) {
			t.Errorf("got %v", err)
		}
		must(t, server.Resume())
	})
}
