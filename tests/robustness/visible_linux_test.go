package robustness_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

func init() { fixtures.RunOnDisk() }

// TestToldIsDurable: a database whose disk does not answer shows a grant of another server, and is killed. No call at a server reported the grant:
// after the restart nobody holds that token.
func TestToldIsDurable(t *testing.T) {
	t.Parallel()
	disk := fixtures.NewDisk(t)
	mariadb := fixtures.NewMariaDB(t, fixtures.WithDisk(disk))
	dsn := mariadb.DSN("told")
	server := fixtures.StartLocket(t, "mysql:"+dsn)
	client := server.Client(t)
	other, err := mysql.Open(t.Context(), harness.Unhurried(t, dsn)) // each write waits for this process
	harness.Must(t, err)
	t.Cleanup(func() { _ = other.Close() })

	told := &tellers{}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var calls sync.WaitGroup
	watch, err := client.Watch(ctx, &models.WatchRequest{Resource: proto.String("r"), NoSnapshot: true})
	harness.Must(t, err)
	_, err = watch.Recv()
	harness.Must(t, err)
	calls.Go(func() {
		for response, err := watch.Recv(); err == nil; response, err = watch.Recv() {
			for _, transition := range response.GetTransitions() {
				told.add("Watch", transition.GetClaim().GetToken())
			}
		}
	})

	disk.Turn(fixtures.DiskHolds)
	time.AfterFunc(3*time.Second, end)
	calls.Go(func() {
		command := claim.Acquire{ID: "taken back", Resource: "r", Owner: "o", TTL: time.Hour}
		if _, err := db.Transact(ctx, other, db.Batch{Requests: []claim.Request{{Command: command}}}); err == nil {
			told.add("who was granted it", 1)
		}
	})
	for name, ask := range map[string]func() (uint64, error){
		"Fetch": func() (uint64, error) {
			found, err := client.Fetch(ctx, &models.FetchRequest{Key: "r"})
			return found.GetToken(), err
		},
		"GetClaim": func() (uint64, error) {
			c, err := client.GetClaim(ctx, &models.GetClaimRequest{Id: "taken back"})
			return c.GetToken(), err
		},
		"GetQueue": func() (uint64, error) {
			queue, err := client.GetQueue(ctx, &models.GetQueueRequest{Resource: "r"})
			return queue.GetToken(), err
		},
		"Lock": func() (uint64, error) { // with a token it is refused, and writes nothing
			_, err := client.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: "r", Owner: "x", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 60, Token: proto.Uint64(1)})
			return tokenOfHolder(err), nil
		},
	} {
		calls.Go(func() {
			for ctx.Err() == nil {
				if token, err := ask(); err == nil {
					told.add(name, token)
				}
				time.Sleep(2 * time.Millisecond) // real time: others need the processor too
			}
		})
	}
	calls.Wait()

	harness.Must(t, errors.Join(mariadb.Kill(), other.Close()))
	disk.Turn(fixtures.DiskWorks)
	harness.Must(t, mariadb.Start())
	harness.Must(t, server.AwaitServing(harness.HangTimeout))
	awaitDatabase(t, client)
	if c, err := client.GetClaim(t.Context(), &models.GetClaimRequest{Id: "taken back"}); err == nil {
		t.Fatalf("the crash did not take back %v", c)
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	for who, token := range told.last {
		t.Errorf("%s told of token %d, which the crash took back", who, token)
	}
}

// tellers are the calls that reported a token.
type tellers struct {
	mu   sync.Mutex
	last map[string]uint64
}

func (k *tellers) add(who string, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if token == 0 {
		return
	}
	if k.last == nil {
		k.last = make(map[string]uint64)
	}
	k.last[who] = token
}

// tokenOfHolder returns the token that a refusal names, 0 for none.
func tokenOfHolder(err error) uint64 {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			token, _ := strconv.ParseUint(info.GetMetadata()["token"], 10, 64)
			return token
		}
	}
	return 0
}
