package robustness_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// obstacles prevent servers from writing to the tables of claims, or to the table of sessions, and not to other tables. Each returns a function that removes it.
var obstacles = map[string]func(*testing.T, *foreigner) (remove func()){
	"LOCK TABLES READ": func(_ *testing.T, f *foreigner) func() {
		f.exec("LOCK TABLES claims READ")
		return func() { f.exec("UNLOCK TABLES") }
	},
	"DDL": func(t *testing.T, f *foreigner) func() { // an ALTER that waits blocks all that come after it
		f.exec("BEGIN")
		f.exec("SELECT COUNT(*) FROM resources")
		altered := harness.Later(func() error { return openForeigner(t, f.dsn).try("ALTER TABLE resources COMMENT 'altered'") })
		return func() {
			f.exec("COMMIT")
			harness.Must(t, <-altered)
		}
	},
	"RENAME": func(_ *testing.T, f *foreigner) func() {
		f.exec("RENAME TABLE claims TO claims_away")
		return func() { f.exec("RENAME TABLE claims_away TO claims") }
	},
	"RENAME sessions": func(_ *testing.T, f *foreigner) func() {
		f.exec("RENAME TABLE sessions TO sessions_away")
		return func() { f.exec("RENAME TABLE sessions_away TO sessions") }
	},
	"LOCK TABLES sessions READ": func(_ *testing.T, f *foreigner) func() {
		f.exec("LOCK TABLES sessions READ")
		return func() { f.exec("UNLOCK TABLES") }
	},
	"all claims locked": func(_ *testing.T, f *foreigner) func() {
		f.exec("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
		f.exec("BEGIN")
		f.exec("SELECT id FROM claims FOR UPDATE")
		return func() { f.exec("COMMIT") }
	},
	"all resources locked": func(_ *testing.T, f *foreigner) func() {
		f.exec("BEGIN")
		f.exec("SELECT name FROM resources FOR UPDATE")
		return func() { f.exec("COMMIT") }
	},
}

// foreigner is a connection to the database that belongs to no server.
type foreigner struct {
	t    *testing.T
	dsn  string
	conn *sql.Conn
}

func openForeigner(t *testing.T, dsn string) *foreigner {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	harness.Must(t, err)
	config.Params = map[string]string{"lock_wait_timeout": "60"}
	pool, err := sql.Open("mysql", config.FormatDSN())
	harness.Must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Conn(context.Background())
	harness.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &foreigner{t, dsn, conn}
}

func (f *foreigner) try(statement string) error {
	_, err := f.conn.ExecContext(context.Background(), statement)
	return err
}

func (f *foreigner) exec(statement string) {
	f.t.Helper()
	harness.Must(f.t, f.try(statement))
}

// ready requests a server's /readyz.
func ready(server *fixtures.Locket) error { return readyAt(server.HTTPAddress()) }

func readyAt(address string) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be used again
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", response.Status)
	}
	return nil
}

// TestLeasesStandStillBehindLocks: while the table of a lease cannot be written, time does not count for the lease, though all other
// tables can be written: statements wait for the table, wait for rows, or fail at once. TestSoakLeasesStandStillBehindLocks tests all
// obstacles.
func TestLeasesStandStillBehindLocks(t *testing.T) {
	t.Parallel()
	harness.AtOnce(t, map[string]func(*testing.T){
		"LOCK TABLES READ, two servers": func(t *testing.T) { behind(t, obstacles["LOCK TABLES READ"], 2) },
		"RENAME sessions":               func(t *testing.T) { behind(t, obstacles["RENAME sessions"], 1) },
		"all claims locked":             func(t *testing.T) { behind(t, obstacles["all claims locked"], 1) },
	})
}

// behind tests an obstacle with a number of servers.
func behind(t *testing.T, obstacle func(*testing.T, *foreigner) (remove func()), servers int) {
	dsn := harness.MySQL(t)
	var all []*fixtures.Locket
	for range servers {
		all = append(all, fixtures.StartLocket(t, "mysql:"+dsn, "--database-timeout", "3s"))
	}
	standStill(t, all, func() func() { return obstacle(t, openForeigner(t, dsn)) })
}

// renewing has clients that renew their claims every second at one server, and one that keeps a session alive, which holds "bound". Behind each of
// them a claim waits at another server.
type renewing struct {
	client, other models.LocketClient
	tokens        map[string]uint64 // of the claims, by their ids and resources
	bound         *models.SessionStatus
	stop          func()
}

// renewTTL is the TTL of their claims, and of the session.
const renewTTL = 10 * time.Second

func startRenewing(t *testing.T, server, other *fixtures.Locket) *renewing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var renewals sync.WaitGroup
	r := &renewing{client: server.Client(t), other: other.Client(t), tokens: make(map[string]uint64)}
	r.stop = func() {
		cancel()
		renewals.Wait()
	}
	t.Cleanup(r.stop)
	for n := range 5 {
		id := fmt.Sprintf("c%d", n)
		r.tokens[id] = create(t, r.client, id, id, renewTTL).GetToken()
		create(t, r.other, id, id+"-next", time.Hour)
		renewals.Go(func() {
			for ctx.Err() == nil {
				_, _ = harness.Renew(t, r.client, id, renewTTL) // the test checks the outcome at the end
				select {
				case <-ctx.Done():
				case <-time.After(time.Second): // real time: between two requests
				}
			}
		})
	}
	s := harness.DialSession(t, r.client)
	s.Open("bound", harness.SessionTTL(renewTTL.Seconds()))
	r.bound = s.Lock("bound", harness.Held)
	create(t, r.other, "bound", "bound-next", time.Hour)
	s.BreakOff()
	renewals.Go(func() { r.keepSession(ctx) })
	return r
}

// keepSession resumes the session whenever its stream has ended, and sends heartbeats.
func (r *renewing) keepSession(ctx context.Context) {
	pause := func() {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // real time: between two heartbeats
		}
	}
	for ; ctx.Err() == nil; pause() {
		stream, err := r.client.Session(ctx)
		request := harness.OpenRequest("bound", harness.SessionTTL(renewTTL.Seconds()), harness.Resume)
		for n := uint64(1); err == nil; n++ {
			request.Sequence = n
			err = stream.Send(request)
			request = harness.HeartbeatCommand()
			pause()
		}
	}
}

// kept checks that no lease has ended, and that leases end when they are not renewed.
func (r *renewing) kept(t *testing.T) {
	t.Helper()
	time.Sleep(2 * time.Second) // real time: a wrong server would end the leases by now
	c, err := get(t, r.client, r.bound.GetClaim())
	if err != nil || c.GetStatus() != active || c.GetToken() != r.bound.GetToken() {
		t.Errorf("the claim of the session: %v (%v), want token %d", c, err, r.bound.GetToken())
	}
	if c, err := get(t, r.other, "bound-next"); err != nil || c.GetStatus() != waiting {
		t.Errorf("who waits for the session: %v (%v)", c, err)
	}
	r.stop()
	for id, token := range r.tokens {
		c, err := harness.Answered(t, func() (*models.Claim, error) { return harness.Renew(t, r.client, id, renewTTL) })
		if err != nil || c.GetToken() != token {
			t.Errorf("the renewal of %s got %v (%v), want token %d", id, c, err, token)
		}
		if c, err := get(t, r.other, id+"-next"); err != nil || c.GetStatus() != waiting {
			t.Errorf("who waits for %s: %v (%v)", id, c, err)
		}
	}
	for _, id := range append(slices.Collect(maps.Keys(r.tokens)), "bound") {
		if c, err := await(t, r.other, id+"-next"); err != nil || c.GetStatus() != active {
			t.Errorf("after the lease of %s: %v (%v)", id, c, err)
		}
	}
}

// standStill keeps an obstacle for longer than the TTL of clients that renew.
func standStill(t *testing.T, servers []*fixtures.Locket, obstacle func() (remove func())) {
	clients := startRenewing(t, servers[0], servers[len(servers)-1])
	remove := obstacle()
	end := time.Now().Add(renewTTL + time.Second) // long enough for the leases to end
	for _, server := range servers {
		harness.Eventually(t, func() error {
			if ready(server) == nil {
				return errors.New("it says that it is ready")
			}
			return nil
		})
	}
	for time.Now().Before(end) {
		for n, server := range servers {
			if ready(server) == nil {
				t.Fatalf("server %d says that it is ready", n)
			}
		}
		time.Sleep(200 * time.Millisecond) // real time: between two looks
	}
	remove()
	for _, server := range servers {
		harness.Eventually(t, func() error { return ready(server) })
	}
	clients.kept(t)
}

// TestLeasesOfLockedRows: while the rows of some claims or resources are locked, their leases do not end at any
// server. Other leases end, since lease time passes. TestSoakLeasesOfLockedRows locks rows of claims too.
func TestLeasesOfLockedRows(t *testing.T) {
	t.Parallel()
	besideLocked(t, lockedResources, 2)
}

// lockedResources are the rows of the resources of renewing.
const lockedResources = "SELECT name FROM resources FORCE INDEX (PRIMARY) WHERE name IN ('c0', 'c1', 'c2', 'c3', 'c4') FOR UPDATE"

func besideLocked(t *testing.T, lock string, servers int) {
	dsn := harness.MySQL(t)
	first := fixtures.StartLocket(t, "mysql:"+dsn)
	last := first
	if servers > 1 {
		last = fixtures.StartLocket(t, "mysql:"+dsn)
	}
	clients := startRenewing(t, first, last)
	foreigner := openForeigner(t, dsn)
	foreigner.exec("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	foreigner.exec("BEGIN")
	foreigner.exec(lock)
	for n := range 3 { // they are locked until each server has found each row locked after the end of its lease
		id := fmt.Sprint("free ", n)
		create(t, clients.client, id, fmt.Sprint("free-", n), renewTTL/2+time.Second)
		create(t, clients.other, id, fmt.Sprint("free-next-", n), time.Hour)
		if c, err := await(t, clients.other, fmt.Sprint("free-next-", n)); err != nil || c.GetStatus() != active {
			t.Errorf("after the lease of another resource: %v (%v)", c, err)
		}
	}
	foreigner.exec("COMMIT")
	clients.kept(t)
}
