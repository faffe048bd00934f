package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/internal/program/cli/connect"
	"github.com/locket-service/locket/internal/program/cli/hold"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// slow is a server that grants everything, and does not answer some calls until a time.
type slow struct {
	models.LocketClient
	silent, unreleased time.Time // until when it answers nothing, and ends no claim
	refuses            error     // what it answers until then, nil for nothing
	ended              atomic.Bool
}

func answerFrom(ctx context.Context, begin time.Time) error {
	select {
	case <-time.After(time.Until(begin)):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s *slow) CreateClaim(_ context.Context, in *models.CreateClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_ACTIVE, Token: 1, Ttl: in.Ttl}, nil
}

func (s *slow) GetQueue(ctx context.Context, _ *models.GetQueueRequest, _ ...grpc.CallOption) (*models.Queue, error) {
	if s.refuses != nil && time.Now().Before(s.silent) {
		return nil, s.refuses
	}
	return &models.Queue{}, answerFrom(ctx, s.silent)
}

func (s *slow) EndClaim(ctx context.Context, _ *models.EndClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	if s.refuses != nil && time.Now().Before(s.unreleased) {
		return nil, s.refuses
	}
	err := answerFrom(ctx, s.unreleased)
	if err == nil {
		s.ended.Store(true)
	}
	return &models.Claim{}, err
}

func (s *slow) Watch(context.Context, *models.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[models.WatchResponse], error) {
	return nil, status.Error(codes.Unimplemented, "no watches here")
}

// keptAt returns a run of one lock at a server that is not real.
func keptAt(client models.LocketClient, stderr io.Writer, o Options) *kept {
	o.Names, o.TTL, o.Forever = []string{"n"}, time.Hour, true
	c := &connect.Connection{LocketClient: client, Settings: connect.Settings{Timeout: 10 * time.Second}}
	return &kept{run: &run{Options: o}, Set: hold.NewSet(c, hold.NewMessages(stderr), 1), signals: make(chan os.Signal, 1)}
}

// Locks are released at a server that answers within the timeout. Behind that it is said until when they are held.
func TestReleaseAtSlowServer(t *testing.T) {
	t.Parallel()
	gone := status.New(codes.Unavailable, "gone")
	busy, err := gone.WithDetails(&errdetails.ErrorInfo{Domain: models.ErrorDomain, Reason: models.ReasonDatabaseUnavailable})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		silent, unreleased time.Duration
		refuses            error
		says               string
	}{
		"slow":        {9 * time.Second, 9 * time.Second, nil, ""},
		"silent":      {time.Hour, time.Hour, nil, `no server has released "n"; it ends by itself within`},
		"ends none":   {0, time.Hour, nil, `no server has released "n"; it ends by itself within`},
		"ends slowly": {0, 9 * time.Second, nil, ""},
		"busy":        {4 * time.Second, 4 * time.Second, busy.Err(), ""},
		"gone":        {4 * time.Second, 4 * time.Second, gone.Err(), `no server can be reached to release "n"; it ends by itself within`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var stderr bytes.Buffer
				server := &slow{}
				k := keptAt(server, &stderr, Options{WaitTTL: time.Minute})
				<-k.request("n").Process.Ready()
				server.silent, server.unreleased, server.refuses = time.Now().Add(test.silent), time.Now().Add(test.unreleased), test.refuses
				if err := k.release(); err != nil {
					t.Error(err)
				}
				ended := server.ended.Load()
				if said := stderr.String(); ended != (test.says == "") || !strings.Contains(said, test.says) || (said == "") != (test.says == "") {
					t.Errorf("released: %v, %q", ended, said)
				}
				time.Sleep(time.Hour) // until nothing tries any more
			})
		})
	}
}

// held is a server where others hold everything. It does not answer questions about them until a time.
type held struct {
	slow
	by string // the id of the claim
}

func (h *held) CreateClaim(_ context.Context, in *models.CreateClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_WAITING, Position: proto.Uint32(1)}, nil
}

func (h *held) GetClaim(ctx context.Context, in *models.GetClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	return &models.Claim{Id: in.GetId(), Status: models.Status_STATUS_WAITING, Position: proto.Uint32(1)}, answerFrom(ctx, h.silent)
}

func (h *held) AwaitClaim(ctx context.Context, in *models.AwaitClaimRequest, _ ...grpc.CallOption) (*models.Claim, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (h *held) GetQueue(ctx context.Context, in *models.GetQueueRequest, options ...grpc.CallOption) (*models.Queue, error) {
	if _, err := h.slow.GetQueue(ctx, in, options...); err != nil {
		return nil, err
	}
	return &models.Queue{Holders: []*models.Claim{{Id: h.by, Owner: "somebody"}}}, nil
}

// A server that is slow to say who holds a lock is asked again: a run that waits for the run around it ends with an error, and a verbose
// run names the holder then.
func TestWaitAtSlowServer(t *testing.T) {
	t.Setenv(hold.RunsVariable, "around")
	for name, test := range map[string]struct {
		by, says string
		err      string
	}{
		"for itself":   {"around", "", "waits for its end"},
		"for somebody": {"other", `locket: "n": held by "somebody", place 1 in the queue; waiting for its turn (Ctrl-C withdraws it); to see the queue: locket resource n` + "\n", "interrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stderr bytes.Buffer
				server := &held{by: test.by}
				server.silent = time.Now().Add(5 * time.Second)
				k := keptAt(server, &stderr, Options{WaitTTL: time.Hour, Verbose: test.says != "", ConflictStatus: NotAcquired})
				time.AfterFunc(time.Minute, func() { k.signals <- os.Interrupt })
				err := k.acquire()
				if err == nil || !strings.Contains(err.Error(), test.err) || stderr.String() != test.says {
					t.Errorf("%v, it says %q", err, &stderr)
				}
				time.Sleep(time.Hour) // until nothing tries any more
			})
		})
	}
}

// away is a server that cannot be reached until a time, and then answers with an error.
type away struct {
	models.LocketClient
	until time.Time
	then  error
	asked int
}

func (a *away) EndClaim(context.Context, *models.EndClaimRequest, ...grpc.CallOption) (*models.Claim, error) {
	a.asked++
	if time.Now().Before(a.until) {
		return nil, status.Error(codes.Unavailable, "away")
	}
	return &models.Claim{}, a.then
}

// A helper that releases the claims of a supervisor that is gone tries until a server decides, and no longer than its time.
func TestEndClaimAtServerThatIsAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		away time.Duration
		then error
		want codes.Code
	}{
		"back":    {9 * time.Second, nil, codes.OK},
		"refuses": {9 * time.Second, status.Error(codes.PermissionDenied, "no"), codes.PermissionDenied},
		"ended":   {0, status.Error(codes.NotFound, "no such claim"), codes.NotFound},
		"away":    {time.Hour, nil, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := &away{until: time.Now().Add(test.away), then: test.then}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := endClaim(ctx, server, "id")
				if status.Code(err) != test.want || test.away == 0 && server.asked != 1 {
					t.Errorf("%v, asked %d times", err, server.asked)
				}
			})
		})
	}
}

// A clock that is set forward while a claim waits, by more than the machine has run for, leaves nothing of the first lease. The run goes on with
// the next renewal.
func TestClockSetForwardWhileItWaits(t *testing.T) {
	t.Parallel()
	l := new(keptLock)
	long := time.Now().Round(0).Add(-100 * 365 * 24 * time.Hour) // by the clock alone
	for range 2 {
		if l.renewed(long, time.Minute); l.leaseEnd() != 0 {
			t.Errorf("leased until %s", l.leaseEnd())
		}
	}
	if l.renewed(time.Now(), time.Minute); l.leaseEnd() <= sinceBoot() {
		t.Errorf("leased until %s, and it is %s", l.leaseEnd(), sinceBoot())
	}
}

// A guard that stands still reads no orders. When their pipe is full, the run goes on, learns of the loss of its lock, and takes signals.
func TestGuardReadsNoOrders(t *testing.T) {
	t.Parallel()
	guard, orders, err := os.Pipe()
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, errors.Join(guard.Close(), orders.Close())) })
	process, err := os.FindProcess(os.Getpid())
	harness.Must(t, err)
	j := &job{kept: &kept{run: &run{Options: Options{TTL: time.Minute}}, locks: []*keptLock{{}}}, orders: orders, helper: &helper{process: process, gone: make(chan struct{})}}
	for _, size := range []int{4096, 1} { // until it is full
		harness.Must(t, orders.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
		for err = nil; err == nil; {
			_, err = orders.Write(make([]byte, size))
		}
	}
	harness.Await(t, "two orders", harness.Later(func() error {
		j.sendLimits()
		j.signal(syscall.SIGTERM)
		return nil
	}))
}

// A command under a lock that was revoked is killed soon after its grace by this process, if the guard does not, however long the TTL is.
func TestOverdueSoonAfterGrace(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, time.Minute, 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			const grace = 9 * time.Second
			j := &job{kept: &kept{run: &run{Options: Options{TTL: ttl, Grace: grace}}, locks: []*keptLock{{end: sinceBoot() + ttl}}}}
			begin := time.Now()
			j.isLost()
			<-j.overdue
			if took := time.Since(begin); took > grace+killTime+time.Second || took < min(grace, ttl*9/10-time.Second) {
				t.Errorf("TTL %s: after %s", ttl, took)
			}
		})
	}
}

// With the longest times, TERM comes before KILL, and KILL is not sent before the grace is over.
func TestLongestTimes(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, 100 * 365 * 24 * time.Hour} {
		j := &job{kept: &kept{run: &run{Options: Options{TTL: ttl, Grace: math.MaxInt64}}}}
		if term, kill := j.limits(sinceBoot() + ttl); term >= kill || term <= sinceBoot() {
			t.Errorf("TTL %s: TERM after %s, KILL after %s", ttl, term-sinceBoot(), kill-sinceBoot())
		}
	}
	j := new(job)
	if j.expectEnd(math.MaxInt64, killTime); j.overdueAt.Before(time.Now().Add(time.Hour)) {
		t.Errorf("this process does not wait for the guard beyond %s", j.overdueAt)
	}
	g := &guard{grace: math.MaxInt64}
	if g.beginGrace(); g.isDue(g.graceEnd) {
		t.Error("the longest grace is over at once")
	}
}
