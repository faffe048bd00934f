package lock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tedsuo/ifrit"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/lock/locktrace"
	"github.com/locket-service/locket/models"
)

// spans makes OpenTelemetry's global provider record the spans of a test.
func spans(t *testing.T) *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return recorder
}

// endedSpan returns the span of a name that has ended, when everything has settled. It must be the only one.
func endedSpan(t *testing.T, recorder *tracetest.SpanRecorder, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	synctest.Wait()
	var found []sdktrace.ReadOnlySpan
	for _, span := range recorder.Ended() {
		if span.Name() == name {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q have ended", len(found), name)
	}
	return found[0]
}

func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// TestSpansOfClient: a wait and a hold are child spans of the span in the context of Acquire, with resource, owner and
// token as attributes. The hold's span links to the wait's, and ends with the lock.
func TestSpansOfClient(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		recorder := spans(t)
		sent := commands{make(chan string, 100)}
		client, err := lock.NewClient(anyAddress, lock.WithObserver(locktrace.Observer()), lock.WithOwner("me"),
			lock.WithDial(w.Option(), conn.WithDialOptions(grpc.WithStatsHandler(sent))))
		must(t, err)
		defer client.Close()
		ctx, caller := otel.Tracer("test").Start(t.Context(), "caller")
		hold, err := client.Acquire(ctx, "a")
		must(t, err)
		wait := endedSpan(t, recorder, "locket.client.wait")
		if got, want := <-sent.traces, fmt.Sprintf("00-%s-%s-01", wait.SpanContext().TraceID(), wait.SpanContext().SpanID()); got != want {
			t.Errorf("the command of the session is of %q, want %q", got, want)
		}
		if got := trace.SpanContextFromContext(hold.Context()); !got.Equal(caller.SpanContext()) {
			t.Errorf("the context of the hold has the span %v", got)
		}
		must(t, hold.Release(t.Context()))
		held := endedSpan(t, recorder, "locket.client.hold")
		for _, span := range []sdktrace.ReadOnlySpan{wait, held} {
			got := attributes(span)
			if got["locket.resource"] != "a" || got["locket.owner"] != "me" || got["locket.token"] == "" || got["locket.token"] == "0" || span.Status().Description != "" {
				t.Errorf("the span %s: %v, %v", span.Name(), got, span.Status())
			}
			if span.Parent().SpanID() != caller.SpanContext().SpanID() {
				t.Errorf("the span %s is in no span of the caller", span.Name())
			}
		}
		if links := held.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != wait.SpanContext().SpanID() {
			t.Errorf("the links of the hold: %v", links)
		}
	})
}

// TestSpansOfFailures: the spans of a failed wait and of a lost lock have an error.
func TestSpansOfFailures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		client := w.client(lock.WithObserver(locktrace.Observer()))
		recorder := spans(t)
		must(t, second(client.Acquire(t.Context(), "a")))
		refused := spans(t)
		_, _ = client.TryAcquire(t.Context(), "a")
		if got := endedSpan(t, refused, "locket.client.wait").Status().Description; got == "" {
			t.Error("a try that was refused is no error of its span")
		}
		must(t, client.Close())
		if got := endedSpan(t, recorder, "locket.client.hold").Status().Description; got == "" {
			t.Error("a loss is no error of its span")
		}
	})
}

// headers collects the header traceparent of calls.
type headers struct{ traces chan string }

func (headers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (headers) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (headers) HandleConn(context.Context, stats.ConnStats)                       {}

// HandleRPC implements stats.Handler.
func (h headers) HandleRPC(_ context.Context, s stats.RPCStats) {
	if header, is := s.(*stats.OutHeader); is {
		h.traces <- strings.Join(header.Header.Get("traceparent"), ",")
	}
}

// commands collects the traces of sessions' lock commands.
type commands struct{ traces chan string }

func (commands) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (commands) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (commands) HandleConn(context.Context, stats.ConnStats)                       {}

// HandleRPC implements stats.Handler.
func (c commands) HandleRPC(_ context.Context, s stats.RPCStats) {
	if out, is := s.(*stats.OutPayload); is {
		if request, is := out.Payload.(*models.SessionRequest); is && request.GetLock() != nil {
			c.traces <- request.GetTraceparent()
		}
	}
}

// TestSpansOfRunner: the calls of a waiting runner are child spans of the wait, and send the trace to the server.
// Renewals are not.
func TestSpansOfRunner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		recorder := spans(t)
		sent := headers{make(chan string, 100)}
		client := w.dial(locktrace.WithTraces(), conn.WithDialOptions(grpc.WithStatsHandler(sent)))
		p := ifrit.Invoke(lock.NewClaimRunner(client, &models.CreateClaimRequest{Resource: "a"}, lock.WithObserver(locktrace.Observer())))
		wait := endedSpan(t, recorder, "locket.client.wait")
		created := endedSpan(t, recorder, "models.Locket/CreateClaim")
		if created.Parent().SpanID() != wait.SpanContext().SpanID() {
			t.Errorf("the call is in the span %v, and the wait is %v", created.Parent(), wait.SpanContext())
		}
		if got, want := <-sent.traces, fmt.Sprintf("00-%s-%s-01", created.SpanContext().TraceID(), created.SpanContext().SpanID()); got != want {
			t.Errorf("the server was told %q, want %q", got, want)
		}
		<-p.Ready()
		time.Sleep(ttl / 2)
		renewals := 0
		for _, span := range recorder.Ended() {
			if span.Name() != "models.Locket/UpdateClaim" {
				continue
			}
			if renewals++; span.Parent().IsValid() {
				t.Error("a renewal is in the span of the wait")
			}
		}
		if renewals == 0 {
			t.Error("no renewal has a span")
		}
		must(t, end(p))
		endedSpan(t, recorder, "locket.client.hold")
	})
}
