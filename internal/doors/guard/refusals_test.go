package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/grpcserver"
	"github.com/locket-service/locket/models"
)

// auditing is an audit guard with its lines and the promises that are open.
type auditing struct {
	grpcserver.Guard
	text     bytes.Buffer
	registry *prometheus.Registry
	promises int
}

func newAuditing(t *testing.T) *auditing {
	a := &auditing{registry: prometheus.NewRegistry()}
	lines := slog.New(slog.NewJSONHandler(&a.text, nil))
	promised := slog.New(slog.NewJSONHandler(writer(func(line []byte) (int, error) {
		if a.promises--; a.promises < 0 {
			t.Error("a line was written that was not promised")
		}
		return a.text.Write(line)
	}), nil))
	a.Guard = Audit(AuditLog{
		Lines: lines, Promised: promised,
		Promise: func() error { a.promises++; return nil },
		Renege:  func() { a.promises-- },
	}, a.registry)
	return a
}

type writer func([]byte) (int, error)

func (w writer) Write(text []byte) (int, error) { return w(text) }

// lines returns how many lines each identity has by message, and how many refusals the lines say were left out.
func (a *auditing) lines(t *testing.T) (calls map[string]int, left map[string]uint64) {
	t.Helper()
	calls, left = make(map[string]int), make(map[string]uint64)
	for text := range bytes.Lines(a.text.Bytes()) {
		var line struct {
			Msg, Identity string
			Refusals      uint64
		}
		must(t, json.Unmarshal(text, &line))
		if line.Msg == "call" {
			calls[line.Identity]++
		} else {
			left[line.Identity] += line.Refusals
		}
	}
	a.text.Reset()
	return calls, left
}

// call makes a call that ends with a code.
func (a *auditing) call(t *testing.T, identity, method string, code codes.Code) {
	call := &grpcserver.Call{FullMethod: method}
	_ = a.Guard(t.Context(), call, func(context.Context) error {
		call.Identify(identity)
		return status.Error(code, "")
	})
}

// reader reads the commands of sessions.
type reader struct {
	models.UnimplementedLocketServer
}

func (reader) Session(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	for {
		if err := stream.RecvMsg(new(models.SessionRequest)); errors.Is(err, io.EOF) {
			return nil
		}
	}
}

// commands sends commands over one stream; those about "x" are refused.
func (a *auditing) commands(t *testing.T, identity string, names ...string) {
	t.Helper()
	refuse := func(ctx context.Context, call *grpcserver.Call, next func(context.Context) error) error {
		call.Identify(identity)
		call.Check(func(message any) error {
			if message.(*models.SessionRequest).GetLock().GetResource() == "x" {
				return status.Error(codes.PermissionDenied, "")
			}
			return nil
		})
		return next(ctx)
	}
	chain := grpcserver.NewChain(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), a.Guard, refuse)
	local := grpcserver.NewLocal(chain, func(s grpc.ServiceRegistrar) { models.RegisterLocketServer(s, reader{}) })
	stream, err := models.NewLocketClient(local).Session(t.Context())
	must(t, err)
	for _, name := range names {
		must(t, stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: name}}}))
	}
	must(t, stream.CloseSend())
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

// TestRefusalsAreBounded: each identity gets a bounded number of refusal lines a second, for all reasons together,
// and a line counts the others. Other identities do not get fewer lines, and each executed change has a line.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuditing(t)
		const flood = 500
		for range flood {
			a.call(t, "denied", models.Locket_Fetch_FullMethodName, codes.PermissionDenied)
			a.call(t, "quick", models.Locket_Lock_FullMethodName, codes.ResourceExhausted)
			a.call(t, "", models.Locket_Fetch_FullMethodName, codes.Unauthenticated)
			a.commands(t, "session", "x", "done")
			a.call(t, "busy", models.Locket_Lock_FullMethodName, codes.OK)
			a.call(t, "busy", models.Locket_Fetch_FullMethodName, codes.OK)
		}
		a.call(t, "modest", models.Locket_Fetch_FullMethodName, codes.PermissionDenied)
		time.Sleep(summaryInterval)
		synctest.Wait()
		calls, left := a.lines(t)
		burst := recordedRefusals.Burst
		for identity, want := range map[string]int{"denied": burst, "quick": burst, "": burst, "session": burst + flood, "busy": flood, "modest": 1} {
			if calls[identity] != want {
				t.Errorf("%q has %d lines, want %d", identity, calls[identity], want)
			}
		}
		total := 0.0
		for identity, want := range map[string]int{"denied": flood - burst, "quick": flood - burst, "": flood - burst, "session": flood - burst, "busy": 0, "modest": 0} {
			total += float64(want)
			if left[identity] != uint64(want) {
				t.Errorf("of %q %d refusals were left out by the lines, want %d", identity, left[identity], want)
			}
		}
		if a.promises != 0 {
			t.Errorf("%d promised lines were neither written nor given up", a.promises)
		}
		families, err := a.registry.Gather()
		must(t, err)
		if got := families[0].GetMetric()[0].GetCounter().GetValue(); got != total {
			t.Errorf("%g are counted, want %g", got, total)
		}
		for range flood {
			a.call(t, "denied", models.Locket_Fetch_FullMethodName, codes.PermissionDenied)
		}
		time.Sleep(summaryInterval)
		synctest.Wait()
		if calls, left := a.lines(t); calls["denied"] > 2*int(recordedRefusals.Requests) || int(left["denied"])+calls["denied"] != flood {
			t.Errorf("a second later there are %d more lines, and %d were left out", calls["denied"], left["denied"])
		}
	})
}
