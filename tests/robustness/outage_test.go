package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// stillHeld checks that a holder keeps its lock and its claim after an outage: they are renewed with the same tokens.
func stillHeld(t *testing.T, client models.LocketClient, key string, lockToken, claimToken uint64, ttl time.Duration) {
	t.Helper()
	token, err := harness.Answered(t, func() (uint64, error) { return harness.TryLock(t, client, key+"-lock", "holder", ttl) })
	if err != nil || token != lockToken {
		t.Errorf("the renewal of %s-lock got token %d (%v), want %d", key, token, err, lockToken)
	}
	if c, err := harness.Answered(t, func() (*models.Claim, error) { return harness.Renew(t, client, key, ttl) }); err != nil || c.GetToken() != claimToken {
		t.Errorf("the renewal of claim %s got %v (%v), want token %d", key, c, err, claimToken)
	}
	if c, err := get(t, client, key+"-next"); err != nil || c.GetStatus() != waiting {
		t.Errorf("who waits for it: %v, %v", c, err)
	}
}

// hold takes a lock, and a claim with another one waiting behind it.
func hold(t *testing.T, client models.LocketClient, key string, ttl time.Duration) (lockToken, claimToken uint64) {
	t.Helper()
	create(t, client, key, key, ttl)
	create(t, client, key, key+"-next", time.Minute)
	lockToken, err := harness.Answered(t, func() (uint64, error) { return harness.TryLock(t, client, key+"-lock", "holder", ttl) })
	harness.Must(t, err)
	c, err := harness.Answered(t, func() (*models.Claim, error) { return harness.Renew(t, client, key, ttl) }) // its lease begins now, too
	harness.Must(t, err)
	return lockToken, c.GetToken()
}

// create makes a claim, and repeats refused requests: a server beside another one, or with a short timeout, refuses
// slow requests.
func create(t *testing.T, client models.LocketClient, key, id string, ttl time.Duration) *models.Claim {
	t.Helper()
	c, err := harness.Answered(t, func() (*models.Claim, error) {
		return client.CreateClaim(t.Context(), &models.CreateClaimRequest{Resource: key, Id: id, Owner: id, Ttl: proto.Float64(ttl.Seconds())})
	})
	harness.Must(t, err)
	return c
}

// get returns the current claim, as create does.
func get(t *testing.T, client models.LocketClient, id string) (*models.Claim, error) {
	t.Helper()
	return harness.Answered(t, func() (*models.Claim, error) {
		return client.GetClaim(t.Context(), &models.GetClaimRequest{Id: id})
	})
}

// await waits until a claim is active, as create does.
func await(t *testing.T, client models.LocketClient, id string) (*models.Claim, error) {
	t.Helper()
	return harness.Answered(t, func() (*models.Claim, error) {
		return client.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: id})
	})
}

// No lease ends while all servers are down, for a long or a short time.
func TestLeasesStandStillWithoutServers(t *testing.T) {
	t.Parallel()
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		server := fixtures.StartLocket(t, database)
		client := server.Client(t)
		const ttl = 10 * time.Second // so long that clients on a busy machine can renew
		lockToken, claimToken := hold(t, client, "long", ttl)
		server.Kill()
		time.Sleep(ttl + time.Second) // real time: the leases would be over
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		stillHeld(t, client, "long", lockToken, claimToken, ttl)

		// Outages that are shorter than the TTL follow each other. None of them counts.
		lockToken, claimToken = hold(t, client, "short", ttl)
		for range 4 {
			server.Kill()
			time.Sleep(ttl / 4) // real time: together the leases would be over
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
		}
		stillHeld(t, client, "short", lockToken, claimToken, ttl)
		server.Terminate()
		time.Sleep(ttl + time.Second) // real time: the leases would be over
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		stillHeld(t, client, "short", lockToken, claimToken, ttl)

		// Leases end while a server runs.
		if _, err := harness.Renew(t, client, "short", time.Second); err != nil {
			t.Fatal(err)
		}
		expired, err := await(t, client, "short-next")
		if err != nil || expired.GetStatus() != active || expired.GetToken() <= claimToken {
			t.Errorf("after the lease: %v, %v", expired, err)
		}
		if _, err := harness.Renew(t, client, "short", ttl); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a claim that expired was renewed: %v", err)
		}
	})
}

// No lease ends while the database cannot be reached. Callers get an error that says so, and the server connects again by itself.
func TestLeasesStandStillWithoutDatabase(t *testing.T) {
	t.Parallel()
	mariadb := fixtures.NewMariaDB(t)
	server := fixtures.StartLocket(t, "mysql:"+mariadb.CreateDatabase(t), "--database-timeout", "3s")
	client := server.Client(t)
	const ttl = 10 * time.Second // so long that clients on a busy machine can renew
	const outage = ttl + time.Second

	t.Run("paused", func(t *testing.T) {
		lockToken, claimToken := hold(t, client, "paused", ttl)
		harness.Must(t, mariadb.Pause())
		begin := time.Now()
		callersAreTold(t, client, outage)
		harness.Must(t, mariadb.Resume())
		awaitDatabase(t, client)
		harness.LogTime(t, "the outage", begin)
		stillHeld(t, client, "paused", lockToken, claimToken, ttl)
	})
	t.Run("killed", func(t *testing.T) {
		lockToken, claimToken := hold(t, client, "killed", ttl)
		harness.Must(t, mariadb.Kill())
		callersAreTold(t, client, outage)
		harness.Must(t, mariadb.Start())
		start := time.Now()
		awaitDatabase(t, client)
		harness.LogTime(t, "to find the database again", start)
		stillHeld(t, client, "killed", lockToken, claimToken, ttl)
	})
}

// callersAreTold sends requests for a while, and checks that all of them fail with a clear message.
func callersAreTold(t *testing.T, client models.LocketClient, d time.Duration) {
	t.Helper()
	said := make(map[string]int)
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { // real time: between two requests
		for name, call := range map[string]func(context.Context) error{
			"Lock": func(ctx context.Context) error {
				_, err := client.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "away", Owner: "o"}, TtlInSeconds: 1})
				return err
			},
			"Fetch": func(ctx context.Context) error {
				_, err := client.Fetch(ctx, &models.FetchRequest{Key: "away"})
				return err
			},
		} {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Second))
			err := call(ctx)
			cancel()
			said[fmt.Sprintf("%s: %v", name, err)]++
			if err == nil {
				t.Fatalf("%s was carried out", name)
			}
			clear := strings.Contains(err.Error(), "database") || strings.Contains(strings.ToLower(err.Error()), "deadline")
			if code := status.Code(err); !clear || code != codes.Unavailable && code != codes.DeadlineExceeded {
				t.Errorf("%s: got %v", name, err)
			}
		}
	}
	for line, n := range said {
		t.Logf("%d times %s", n, line)
	}
}

// awaitDatabase waits until the server commits again. It leaves no claim behind.
func awaitDatabase(t *testing.T, client models.LocketClient) {
	t.Helper()
	harness.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
		defer cancel()
		_, err := client.Release(ctx, &models.ReleaseRequest{Resource: &models.Resource{Key: "nobody has this"}})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return fmt.Errorf("not yet: %w", err)
	})
}

// A server waits for a database that does not run yet, and ends after a while.
func TestStartBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	mariadb := fixtures.NewMariaDB(t)
	dsn := mariadb.DSN("fresh")
	harness.Must(t, mariadb.Stop())

	t.Run("times out", func(t *testing.T) {
		server := fixtures.NewLocket(t, "mysql:"+dsn, "--database-wait", "2s")
		start := time.Now()
		harness.Must(t, server.Launch())
		code, err := server.Wait(harness.HangTimeout)
		if took := time.Since(start); err != nil || code != 1 || took < 2*time.Second { // real time: it must not be earlier on any machine
			t.Errorf("exit code %d (%v) after %v", code, err, took)
		}
		lines := strings.Split(strings.TrimSpace(server.Log()), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "locket: ") || !strings.Contains(last, "the database is not available") || !strings.Contains(last, mariadb.Addr()) {
			t.Errorf("the last line is %q", last)
		}
	})
	t.Run("waits", func(t *testing.T) {
		server := fixtures.NewLocket(t, "mysql:"+dsn, "--database-wait", "10m")
		harness.Must(t, server.Launch())
		time.Sleep(1500 * time.Millisecond) // real time: if it does not wait for the database, it serves or ends meanwhile
		if conn, err := net.Dial("tcp", server.Address()); err == nil {
			conn.Close()
			t.Error("serves without a database")
		}
		harness.Must(t, mariadb.Start())
		harness.Must(t, server.AwaitServing(harness.HangTimeout))
		client := server.Client(t)
		_, err := harness.Answered(t, func() (uint64, error) { return harness.TryLock(t, client, "k", "o", time.Minute) })
		harness.Must(t, err)
	})
	t.Run("gets a signal", func(t *testing.T) {
		harness.Must(t, mariadb.Stop())
		server := fixtures.NewLocket(t, "mysql:"+dsn)
		harness.Must(t, server.Launch())
		harness.Eventually(t, func() error {
			if !strings.Contains(server.Log(), "waiting for the database") {
				return errors.New("it does not wait yet")
			}
			return nil
		})
		if code, _ := server.Terminate(); code != 0 {
			t.Errorf("exit code %d: %s", code, server.Log())
		}
	})
}

// When a connection is cut in the middle of a COMMIT, the caller gets the true answer, whether the database has received the COMMIT or not.
func TestCutDuringCommit(t *testing.T) {
	t.Parallel()
	database, proxy := harness.Proxied(t)
	dsn := harness.Unhurried(t, strings.TrimPrefix(database, "mysql:")) // cut connections are closed, not silent
	client := fixtures.StartLocket(t, "mysql:"+dsn).Client(t)

	// A new connection sends READ COMMITTED, which contains the pattern, so each cut is made on a connection that was used before.
	cutCommit := func(cut func([]byte) <-chan struct{}, request func()) {
		harness.Lock(t, client, "warm", "o", time.Minute)
		fired := cut([]byte("; COMMIT"))
		request()
		harness.Await(t, "connection that was cut", fired)
	}
	made := make(map[string]uint64)
	for name, cut := range map[string]func([]byte) <-chan struct{}{"on": proxy.CutOn, "before": proxy.CutBefore} {
		for n := range 10 {
			id := fmt.Sprintf("%s-%d", name, n)
			cutCommit(cut, func() { made[id] = harness.Create(t, client, id, id, time.Minute).GetToken() })
			cutCommit(cut, func() {
				if n%2 == 0 {
					harness.Release(t, client, id)
				} else if c, err := harness.Renew(t, client, id, time.Minute); err != nil || c.GetToken() != made[id] {
					t.Errorf("renew %s: %v, %v", id, c, err)
				}
			})
		}
	}
	// Lock and Release have no id: a second execution would not answer as the first.
	for name, cut := range map[string]func([]byte) <-chan struct{}{"on": proxy.CutOn, "before": proxy.CutBefore} {
		var token uint64
		cutCommit(cut, func() { token = harness.Lock(t, client, name, "o", time.Minute) })
		cutCommit(cut, func() {
			_, err := client.Release(t.Context(), &models.ReleaseRequest{Resource: &models.Resource{Key: name, Owner: "o"}, Token: &token})
			if err != nil {
				t.Errorf("release of %s: %v", name, err)
			}
		})
		made[name] = token
	}
	made["warm"] = harness.Lock(t, client, "warm", "o", time.Minute)
	for _, c := range harness.ListAll(t, client) {
		id := c.GetId()
		if made[id] == 0 { // a lock
			id = c.GetResource()
		}
		if token, ok := made[id]; !ok || token != c.GetToken() {
			t.Errorf("token %d was answered, and there is %v", token, c)
		}
		delete(made, id)
	}
	if len(made) > 0 {
		t.Errorf("lost: %v", made)
	}
}

// When the network hangs, also in the middle of a COMMIT, callers get an error within a few times the timeout of a transaction: the
// requests before them are carried out first, and the outcome of a COMMIT is queried. The server continues when the network is back.
func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	database, proxy := harness.Proxied(t)
	server := fixtures.StartLocket(t, database, "--database-timeout", timeout.String())
	client := server.Client(t)
	for round := range 3 {
		var callers sync.WaitGroup
		busy, stop := context.WithCancel(t.Context())
		for n := range 8 {
			callers.Go(func() {
				for busy.Err() == nil {
					_, _ = client.Lock(t.Context(), &models.LockRequest{
						Resource: &models.Resource{Key: fmt.Sprint(n), Owner: "o"}, TtlInSeconds: 60,
					})
				}
			})
		}
		time.Sleep(time.Duration(200+round) * time.Millisecond) // real time: of load
		proxy.Hang()
		start := time.Now()
		_, err := harness.TryLock(t, client, "k", "o", time.Minute)
		harness.AtMost(t, "the refusal", time.Since(start), 15*timeout)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
		stop()
		proxy.Restore()
		start = time.Now()
		awaitDatabase(t, client)
		harness.LogTime(t, "to be back", start)
		callers.Wait()
	}
}
