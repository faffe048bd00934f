package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestQuarantineRefuses: in every protocol the error of a request that a quarantine refuses says that it may be repeated, and clients repeat it.
// Holders keep their locks.
func TestQuarantineRefuses(t *testing.T) {
	t.Parallel()
	server := quarantined(t, "embedded", time.Hour).start(t)
	client := server.Client(t)
	for name, test := range map[string]func(*testing.T){
		"Lock": func(t *testing.T) {
			_, err := harness.TryLock(t, client, "free lock", "me", time.Minute)
			if models.ReasonOf(err) != models.ReasonQuarantine {
				t.Error(err)
			}
		},
		"CreateClaim": func(t *testing.T) {
			inQuarantine(t, client, "a claim that does not wait")
			if c := harness.Create(t, client, "free to wait", "waits", time.Minute); c.GetStatus() != models.Status_STATUS_WAITING {
				t.Error(c)
			}
		},
		"UpdateClaim": func(t *testing.T) {
			if c, err := harness.Renew(t, client, "k-holds", time.Hour); err != nil || c.GetStatus() != models.Status_STATUS_ACTIVE {
				t.Error(c, err)
			}
		},
		"Session": func(t *testing.T) {
			s := harness.DialSession(t, client)
			s.Open("refused", harness.SessionTTL(600))
			s.KeepAlive()
			if e := s.Answer(s.Ask(harness.LockCommand("free by session", harness.Try))).GetError(); codes.Code(e.GetCode()) != codes.Unavailable || e.GetReason() != models.ReasonQuarantine {
				t.Error(e)
			}
			s.Lock("free by session", harness.Waiting)
			s.Close()
		},
		"REST": func(t *testing.T) {
			resp, err := http.Post("http://"+server.HTTPAddress()+"/v1/claims/", "application/json", strings.NewReader(`{"resource": "free", "ttl": 60, "no_wait": true}`))
			must(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			must(t, err)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "restored from a backup") {
				t.Errorf("%s, %v, %s", resp.Status, resp.Header, body)
			}
		},
		"commands blame no holder that there is not": func(t *testing.T) {
			const nobody = "held by nobody now (after a restore nothing is granted for a time: locket status)"
			for _, c := range []struct{ says, args string }{
				{`"new" was not acquired within 100ms: ` + nobody + "; to see", "run new --address %s --wait 100ms -- true"},
				{"The next claim will hold it.", "explain new --address %s"},
				{"the claim waits at place 1", "claim new --address %s --id w"},
				{`"new" is ` + nobody + ", 1 wait; to see", "lock new --address %s --owner me"},
				{"After a restore nothing is granted for a time: locket status tells for how long.", "explain new --address %s"},
			} {
				args := strings.Fields(fmt.Sprintf(c.args, server.Address()))
				if stdout, stderr, _ := harness.RunLocket(t, nil, args...); !strings.Contains(stdout+stderr, c.says) {
					t.Errorf("%s: %s%s", args, stdout, stderr)
				}
			}
		},
		"a runner": func(t *testing.T) {
			counted := &countedClient{LockClient: client, refused: make(chan error, 100)}
			runner := lock.NewLockRunner(counted, &models.Resource{Key: "free for a runner", Owner: "me", TypeCode: models.TypeCode_LOCK}, time.Minute, 50*time.Millisecond)
			process := ifrit.Background(runner)
			for range 3 {
				if err := harness.Await(t, "refusal", counted.refused); models.ReasonOf(err) != models.ReasonQuarantine {
					t.Error(err)
				}
			}
			select {
			case <-process.Ready():
				t.Error("it holds the lock")
			case err := <-process.Wait():
				t.Fatalf("it gave up: %v", err)
			default:
			}
			process.Signal(os.Interrupt)
			if err := <-process.Wait(); err != nil {
				t.Error(err)
			}
		},
		"a mutex": func(t *testing.T) {
			session, err := lock.NewSession([]string{server.Address()})
			must(t, err)
			defer func() { must(t, session.Close(context.Background())) }()
			m := lock.NewMutex(session, "free for a mutex")
			if locked, err := m.TryLock(t.Context()); locked || err == nil || !strings.Contains(err.Error(), "restored from a backup") {
				t.Error(locked, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := m.Lock(ctx); err == nil || ctx.Err() == nil {
				t.Errorf("it does not wait: %v", err)
			}
		},
		"a keychain": func(t *testing.T) {
			kc, err := keychain.New("http://"+server.HTTPAddress(), keychain.WithReleaseTimeout(harness.HangTimeout))
			must(t, err)
			defer func() { must(t, kc.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if c, err := kc.Claim(ctx, "free for a keychain"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it does not wait: %v, %v", c, err)
			}
		},
		"the program": func(t *testing.T) {
			for _, args := range [][]string{
				{"lock", "free", "--owner", "me"},
				{"lock", "free", "--hold"},
				{"claim", "free", "--no-wait"},
				{"run", "--no-wait", "free", "--", "true"},
			} {
				_, stderr, code := harness.RunLocket(t, []string{"LOCKET_ADDRESS=" + server.Address()}, args...)
				if code == 0 || code == 5 || code == 123 || !strings.Contains(stderr, "restored from a backup") {
					t.Errorf("%q: %d, %s", args, code, stderr)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// TestKeychainAfterQuarantine: a claim that a keychain requests in a quarantine is granted after its end.
func TestKeychainAfterQuarantine(t *testing.T) {
	t.Parallel()
	server := quarantined(t, "embedded", quarantine).start(t)
	kc, err := keychain.New("http://"+server.HTTPAddress(), keychain.WithReleaseTimeout(harness.HangTimeout))
	must(t, err)
	defer func() { must(t, kc.Close()) }()
	claimed := make(chan error, 1)
	go func() {
		c, err := kc.Claim(t.Context(), "free for a keychain")
		if err == nil && (!c.Held() || c.Token() == 0) {
			err = fmt.Errorf("held: %t, token %d", c.Held(), c.Token())
		}
		claimed <- err
	}()
	client := server.Client(t)
	harness.Until(t, "claim of the keychain", func() bool {
		list, err := client.ListClaims(t.Context(), &models.ListClaimsRequest{Resource: proto.String("free for a keychain")})
		must(t, err)
		return len(list.GetClaims()) == 1
	})
	inQuarantine(t, client, "when the keychain waits")
	must(t, harness.Await(t, "turn of the keychain", claimed))
}

// countedClient is a client that sends the results of its calls to refused.
type countedClient struct {
	lock.LockClient
	refused chan error
}

func (c *countedClient) Lock(ctx context.Context, in *models.LockRequest, options ...grpc.CallOption) (*models.LockResponse, error) {
	resp, err := c.LockClient.Lock(ctx, in, options...)
	select {
	case c.refused <- err:
	default:
	}
	return resp, err
}
