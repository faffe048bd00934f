package robustness_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// obstacles are what keeps others from writing in the tables of the claims, and lets them write in all
// others. Each returns what removes it.
var obstacles = map[string]func(*testing.T, *foreigner) (remove func()){
	"LOCK TABLES READ": func(_ *testing.T, f *foreigner) func() {
		f.exec("LOCK TABLES claims READ")
		return func() { f.exec("UNLOCK TABLES") }
	},
	"DDL": func(t *testing.T, f *foreigner) func() { // an ALTER that waits lets nobody pass
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

// foreigner is somebody else's connection to the database.
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

// ready asks a server's /readyz.
func ready(server *fixtures.Locket) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + server.HTTPAddress() + "/readyz")
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", response.Status)
	}
	return nil
}

// TestLeasesStandStillBehindLocks: nothing counts against a lease while its table cannot be written, however
// many servers there are, and although everything else in the database can be.
func TestLeasesStandStillBehindLocks(t *testing.T) {
	for name, obstacle := range obstacles {
		for servers := 1; servers <= 2; servers++ {
			t.Run(fmt.Sprintf("%s/%d servers", name, servers), func(t *testing.T) {
				t.Parallel()
				dsn := fixtures.MySQL(t)
				var all []*fixtures.Locket
				for range servers {
					all = append(all, fixtures.StartLocket(t, "mysql:"+dsn, "--database-timeout", "3s"))
				}
				standStill(t, all, func() func() { return obstacle(t, openForeigner(t, dsn)) })
			})
		}
	}
}

// standStill has clients of the first server renew every second, with a waiter behind each at the last one,
// while there is an obstacle for longer than the TTL.
func standStill(t *testing.T, servers []*fixtures.Locket, obstacle func() (remove func())) {
	const (
		ttl     = 3 * time.Second
		clients = 5
	)
	client, other := servers[0].Client(t), servers[len(servers)-1].Client(t)
	ctx, stop := context.WithCancel(t.Context())
	var renewals sync.WaitGroup
	defer renewals.Wait()
	defer stop()
	tokens := make(map[string]uint64)
	for n := range clients {
		id := fmt.Sprintf("c%d", n)
		tokens[id] = harness.Create(t, client, id, id, ttl).GetToken()
		harness.Create(t, other, id, id+"-next", time.Hour)
		renewals.Go(func() {
			for ctx.Err() == nil {
				_, _ = harness.Renew(t, client, id, ttl) // what comes of it is seen in the end
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	remove := obstacle()
	begin := time.Now()
	for _, server := range servers {
		harness.Eventually(t, func() error {
			if ready(server) == nil {
				return errors.New("it says that it is ready")
			}
			return nil
		})
	}
	for time.Since(begin) < 4*ttl {
		for n, server := range servers {
			if ready(server) == nil {
				t.Errorf("server %d says that it is ready after %v", n, time.Since(begin))
				break
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	remove()
	for _, server := range servers {
		harness.Eventually(t, func() error { return ready(server) })
	}
	time.Sleep(2 * time.Second) // time for whoever would take the leases away
	stop()
	renewals.Wait()
	for id, token := range tokens {
		if c, err := harness.Renew(t, client, id, ttl); err != nil || c.GetToken() != token {
			t.Errorf("the renewal of %s got %v (%v), want token %d", id, c, err, token)
		}
		if c, err := other.GetClaim(t.Context(), &models.GetClaimRequest{Id: id + "-next"}); err != nil || c.GetStatus() != waiting {
			t.Errorf("who waits for %s: %v (%v)", id, c, err)
		}
	}
	for id := range tokens { // and lease time goes on
		if c, err := other.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: id + "-next"}); err != nil || c.GetStatus() != active {
			t.Errorf("after the lease of %s: %v (%v)", id, c, err)
		}
	}
	for _, server := range servers {
		if strings.Contains(server.Log(), "panic") {
			t.Error("a panic")
		}
	}
}
