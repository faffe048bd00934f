package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

const (
	healthService = "/grpc.health.v1.Health/"
	malformed     = "\xff" // no message can be decoded from it
)

// atOpenListeners runs a test without TLS and with it.
func atOpenListeners(t *testing.T, test func(t *testing.T, d *openedListeners)) {
	t.Run("plain", func(t *testing.T) { test(t, openListeners(t, nil)) })
	t.Run("TLS", func(t *testing.T) { test(t, openListeners(t, fixtures.NewCA(t))) })
}

// TestEveryCallIsGuarded: a guard sees each call of every gRPC method and of every HTTP route once, with the same
// knowledge of its caller.
func TestEveryCallIsGuarded(t *testing.T) {
	t.Parallel()
	atOpenListeners(t, func(t *testing.T, d *openedListeners) {
		for _, method := range d.methods(t) {
			d.take()
			_ = d.call(t, method, "over-grpc")
			var want []seen
			if !strings.HasPrefix(method.name, healthService) {
				want = []seen{d.grpcConn.wants(method.name, "over-grpc", d.tls)}
			}
			if got := d.take(); !slices.Equal(got, want) {
				t.Errorf("%s: the guard has seen\n%+v, want\n%+v", method.name, got, want)
			}
		}
		for _, route := range routes(t) {
			_, header, _ := d.request(t, route.method, route.path, route.body, "over-http")
			want := []seen{d.httpConn.wants(route.rpc, "over-http", d.tls)}
			if got := d.take(); !slices.Equal(got, want) || header.Get("X-Request-Id") != "over-http" {
				t.Errorf("%s %s: the guard has seen\n%+v, want\n%+v", route.method, route.path, got, want)
			}
			_, header, _ = d.request(t, route.method, route.path, route.body, "")
			if got := d.take(); len(got) != 1 || got[0].id == "" || got[0].id != header.Get("X-Request-Id") {
				t.Errorf("%s %s: without an id: %+v, the header says %q", route.method, route.path, got, header.Get("X-Request-Id"))
			}
		}
	})
}

// TestEveryCallIsRefused: a call that a guard refuses reaches no handler at any listener, and HTTP answers with the
// status that belongs to the code.
func TestEveryCallIsRefused(t *testing.T) {
	t.Parallel()
	atOpenListeners(t, func(t *testing.T, d *openedListeners) {
		for code, httpCode := range map[codes.Code]int{
			codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden, codes.ResourceExhausted: http.StatusTooManyRequests,
		} {
			d.refuseWith(nil)
			methods := d.methods(t)
			d.refuseWith(status.Error(code, "refused"))
			for _, method := range methods {
				for _, request := range []string{"", malformed} {
					err := d.send(t, method, "x", request)
					if strings.HasPrefix(method.name, healthService) {
						if status.Code(err) == code {
							t.Errorf("%s: %v", method.name, err)
						}
					} else if status.Code(err) != code || status.Convert(err).Message() != "refused" {
						t.Errorf("%s %q: %v", method.name, request, err)
					}
				}
			}
			for _, route := range routes(t) {
				got, _, body := d.request(t, route.method, route.path, route.body, "")
				if got != httpCode || body != `{"message":"refused"}`+"\n" {
					t.Errorf("%s %s: %d %s, want %d", route.method, route.path, got, body, httpCode)
				}
			}
		}
		d.refuseWith(nil)
		if code, _, body := d.request(t, "GET", "/v1/claims/", "", ""); code != http.StatusOK || strings.TrimSpace(body) != "[]" {
			t.Errorf("requests that were refused left behind %d %s", code, body)
		}
	})
}

// TestPagesAreNotGuarded: the pages that HTTP serves beside RPCs. A new page needs a decision whether everybody may
// read it.
func TestPagesAreNotGuarded(t *testing.T) {
	t.Parallel()
	d := openListeners(t, nil)
	d.refuseWith(status.Error(codes.Unauthenticated, "refused"))
	if code, _, _ := d.request(t, "GET", "/metrics", "", ""); code != http.StatusUnauthorized {
		t.Errorf("/metrics: %d", code)
	}
	d.take()
	for _, path := range []string{"/healthz", "/readyz", "/docs", "/openapi.json", "/console/", "/console/app.js"} {
		harness.Eventually(t, func() error { // it is not ready while a transaction takes long, as on a busy machine
			if code, _, _ := d.request(t, "GET", path, "", ""); code != http.StatusOK {
				return fmt.Errorf("%s: %d", path, code)
			}
			return nil
		})
	}
	if got := d.take(); len(got) != 0 {
		t.Errorf("a guard has seen %+v", got)
	}
}

// TestMalformedIsGuarded: a message that cannot be decoded passes the guards as others do.
func TestMalformedIsGuarded(t *testing.T) {
	t.Parallel()
	d := openListeners(t, nil)
	for _, method := range d.methods(t) {
		if !strings.HasPrefix(method.name, "/models.Locket/") {
			continue
		}
		d.take()
		if err := d.send(t, method, "malformed", malformed); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", method.name, err)
		}
		if got := d.take(); len(got) != 1 || got[0].method != method.name || got[0].id != "malformed" {
			t.Errorf("%s: the guard has seen %+v", method.name, got)
		}
	}
}

// rpc is a method of a service that is served.
type rpc struct {
	name   string
	stream bool
}

// methods asks the server which services it has, and lists their methods.
func (d *openedListeners) methods(t *testing.T) (list []rpc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(d.grpc).ServerReflectionInfo(ctx)
	must(t, err)
	must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	answer, err := stream.Recv()
	must(t, err)
	for _, service := range answer.GetListServicesResponse().GetService() {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		must(t, err)
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			list = append(list, rpc{"/" + service.GetName() + "/" + string(m.Name()), m.IsStreamingClient() || m.IsStreamingServer()})
		}
	}
	for _, want := range []string{"/models.Locket/Lock", healthService + "Watch"} {
		if !slices.ContainsFunc(list, func(r rpc) bool { return r.name == want }) {
			t.Fatalf("%v lacks %s", list, want)
		}
	}
	return list
}

// call calls a method with an empty message.
func (d *openedListeners) call(t *testing.T, method rpc, id string) error {
	t.Helper()
	return d.send(t, method, id, "")
}

// send calls a method with an encoded message, and returns its error. For a stream it waits for the first answer.
func (d *openedListeners) send(t *testing.T, method rpc, id, message string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.HangTimeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "uuid", id)
	option := grpc.ForceCodec(asItIs{})
	request, reply := []byte(message), []byte(nil)
	if !method.stream {
		return d.grpc.Invoke(ctx, method.name, &request, &reply, option)
	}
	stream, err := d.grpc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method.name, option)
	must(t, err)
	_, _ = stream.SendMsg(&request), stream.CloseSend() // RecvMsg returns the error
	return stream.RecvMsg(&reply)
}

// asItIs is a codec for encoded messages.
type asItIs struct{}

func (asItIs) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (asItIs) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (asItIs) Name() string                       { return "proto" }

// route is a request that becomes a call.
type route struct{ rpc, method, path, body string }

// routes returns a request for each route of the REST gateway.
func routes(t *testing.T) (list []route) {
	t.Helper()
	bodies := map[string]string{"POST": `{"resource": "r", "ttl": 60}`, "PATCH": `{"ttl": 60}`, "PUT": `{"ttl": 60}`}
	for _, r := range harness.Routes(t, "../../../models/locket.rest.yaml") {
		path, _, named := strings.Cut(r.Path, "{")
		if named {
			path += "nobody"
		}
		if strings.HasPrefix(path, "/v1/permissions/") {
			path += "?right=hold" // the gateway itself refuses the request without it
		}
		list = append(list, route{r.RPC, r.Method, path, bodies[r.Method]})
	}
	return list
}
