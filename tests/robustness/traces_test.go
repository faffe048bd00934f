package robustness_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// receiver is a receiver of OTLP over gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span
}

// Export implements collector.TraceServiceServer.
func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// receiveSpans starts a receiver, and returns the environment of a server that sends there.
func receiveSpans(t *testing.T) (r *receiver, env []string) {
	t.Helper()
	listener := fixtures.Listen(t)
	r = &receiver{}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return r, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + listener.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_BSP_SCHEDULE_DELAY=20"}
}

// find waits for a span of a trace.
func (r *receiver) find(t *testing.T, trace, name string) (span *tracepb.Span) {
	t.Helper()
	harness.Eventually(t, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var names []string
		for _, s := range r.spans {
			names = append(names, s.GetName())
			if s.GetName() == name && hex.EncodeToString(s.GetTraceId()) == trace {
				span = s
				return nil
			}
		}
		return fmt.Errorf("no span %s of %s among %v", name, trace, names)
	})
	return span
}

// traceOf returns a new trace, the span of a caller in it, and the header that transmits both.
func traceOf(n int) (trace, span, header string) {
	trace, span = fmt.Sprintf("%032x", n), fmt.Sprintf("%016x", 1000+n)
	return trace, span, "00-" + trace + "-" + span + "-01"
}

// TestTraces: the calls of a holder over gRPC, of a waiter over REST and of a session are spans in the traces of their callers, and so are their
// transactions. Each wait is linked to its holder.
func TestTraces(t *testing.T) {
	t.Parallel()
	r, env := receiveSpans(t)
	server := fixtures.NewLocket(t, harness.Embedded(t), "--log-level", "debug", "--log-format", "json")
	server.Env = env
	harness.Must(t, server.Start())

	holder, holderSpan, header := traceOf(1)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", header)
	client := server.Client(t)
	ttl := 3600.0
	_, err := client.CreateClaim(ctx, &models.CreateClaimRequest{Id: "holder", Resource: "k", Ttl: &ttl})
	harness.Must(t, err)

	waiter, waiterSpan, header := traceOf(2)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+server.HTTPAddress()+"/v1/claims/", strings.NewReader(`{"id":"waiter","resource":"k","ttl":3600}`))
	harness.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", header)
	response, err := http.DefaultClient.Do(request)
	harness.Must(t, err)
	harness.Must(t, response.Body.Close())
	if response.StatusCode != http.StatusAccepted {
		t.Fatal(response.Status)
	}

	inSession, _, header := traceOf(3)
	session := harness.DialSession(t, withTrace{client, header})
	session.Open("s", lasting)
	session.KeepAlive()
	session.Lock("k", harness.Waiting)

	harness.Release(t, client, "holder") // not traced by its caller: the server begins a trace
	session.Quiet()
	harness.Release(t, client, "waiter")
	session.Hears("k", harness.Waiting, harness.Held)

	made := r.find(t, holder, "models.Locket/CreateClaim")
	if hex.EncodeToString(made.GetParentSpanId()) != holderSpan {
		t.Errorf("the parent of the call is %x", made.GetParentSpanId())
	}
	asked := r.find(t, waiter, "models.Locket/CreateClaim")
	if hex.EncodeToString(asked.GetParentSpanId()) != waiterSpan {
		t.Errorf("the parent of the call over REST is %x", asked.GetParentSpanId())
	}
	for trace, parent := range map[string]*tracepb.Span{holder: made, waiter: asked} {
		for _, name := range []string{"locket.queue", "locket.commit"} {
			if s := r.find(t, trace, name); string(s.GetParentSpanId()) != string(parent.GetSpanId()) || s.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano() {
				t.Errorf("%s is not within the call: %v, %v", name, s, parent)
			}
		}
	}
	linked := func(trace, to string) {
		t.Helper()
		wait := r.find(t, trace, "locket.wait")
		if links := wait.GetLinks(); len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != to {
			t.Errorf("the wait is linked to %v, want %s", links, to)
		}
	}
	linked(waiter, holder)
	linked(inSession, waiter)
	harness.Eventually(t, func() error {
		for line := range strings.Lines(server.Log()) {
			if strings.Contains(line, `"trace_id":"`+waiter+`"`) && strings.Contains(line, `"method":"CreateClaim"`) {
				return nil
			}
		}
		return errors.New("no line of the log has the trace of the call over REST")
	})
}

// TestTracesOfTwoServers: a wait that another server ends has a span. It is linked to the call of the holder if the waiter's server has made the holder's
// claim; otherwise the holder's id leads to the trace of that call.
func TestTracesOfTwoServers(t *testing.T) {
	t.Parallel()
	r, env := receiveSpans(t)
	database := "mysql:" + harness.MySQL(t)
	start := func() models.LocketClient {
		server := fixtures.NewLocket(t, database)
		server.Env = env
		harness.Must(t, server.Start())
		return server.Client(t)
	}
	first, second := start(), start()
	knowsFeed(t, second)
	create := func(client models.LocketClient, n int, id string) (trace string) {
		trace, _, header := traceOf(n)
		ttl := 3600.0
		_, err := client.CreateClaim(metadata.AppendToOutgoingContext(t.Context(), "traceparent", header), &models.CreateClaimRequest{Id: id, Resource: "k", Ttl: &ttl})
		harness.Must(t, err)
		return trace
	}
	atFirst := create(first, 11, "at-first")
	atSecond := create(second, 12, "at-second")
	again := create(second, 13, "again")
	harness.Release(t, first, "at-first")
	wait := r.find(t, atSecond, "locket.wait")
	if of := attributesOf(wait); len(wait.GetLinks()) != 0 || of["locket.holder"] != "at-first" || of["locket.claim"] != "at-second" || of["locket.server"] == "" {
		t.Errorf("the wait for a claim of the other server: %v, linked to %v", of, wait.GetLinks())
	}
	if of := attributesOf(r.find(t, atFirst, "locket.commit")); of["locket.claim"] != "at-first" {
		t.Errorf("the transaction that has made the claim has %v", of)
	}
	harness.Release(t, first, "at-second")
	wait = r.find(t, again, "locket.wait")
	if links := wait.GetLinks(); len(links) != 1 || hex.EncodeToString(links[0].GetTraceId()) != atSecond || attributesOf(wait)["locket.server"] == "" {
		t.Errorf("the wait for a claim of the same server: %v, linked to %v", attributesOf(wait), links)
	}
}

// knowsFeed returns when a server has started to read others' commits.
func knowsFeed(t *testing.T, client models.LocketClient) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Watch(ctx, &models.WatchRequest{NoSnapshot: true})
	harness.Must(t, err)
	for synced := false; !synced; {
		response, err := stream.Recv()
		harness.Must(t, err)
		synced = response.GetSynced()
	}
}

// attributesOf returns the attributes of a span that are texts.
func attributesOf(span *tracepb.Span) map[string]string {
	of := make(map[string]string)
	for _, a := range span.GetAttributes() {
		of[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return of
}

// withTrace is a client that opens its sessions in a trace.
type withTrace struct {
	models.LocketClient
	header string
}

// Session implements models.LocketClient.
func (c withTrace) Session(ctx context.Context, options ...grpc.CallOption) (grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse], error) {
	return c.LocketClient.Session(metadata.AppendToOutgoingContext(ctx, "traceparent", c.header), options...)
}

// TestTracesGoNowhere: a receiver that cannot be reached delays no request, and is logged.
func TestTracesGoNowhere(t *testing.T) {
	t.Parallel()
	server := fixtures.NewLocket(t, harness.Embedded(t))
	server.Env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=20", "OTEL_EXPORTER_OTLP_TIMEOUT=100"}
	harness.Must(t, server.Start())
	client := server.Client(t)
	at(3000, func(i int) { // more than the exporter keeps
		if _, err := harness.TryLock(t, client, fmt.Sprint("k", i), "o", time.Hour); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, func() error {
		if !strings.Contains(server.Log(), "traces cannot be sent") {
			return errors.New("the log does not say that traces cannot be sent")
		}
		return nil
	})
}

// TestTracesRefused: a server ends with an error if the environment names an exporter that does not exist.
func TestTracesRefused(t *testing.T) {
	t.Parallel()
	for variable, value := range map[string]string{"OTEL_TRACES_EXPORTER": "zipkin", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"} {
		env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", variable + "=" + value}
		_, stderr, code := harness.RunLocket(t, env, "server", "--database", harness.Embedded(t), "--grpc-address", "127.0.0.1:0", "--http-address", "")
		if code == 0 || !strings.Contains(stderr, variable) {
			t.Errorf("%s=%s: code %d, %s", variable, value, code, stderr)
		}
	}
}
