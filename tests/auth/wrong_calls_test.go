package auth_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// target is the object of calls: a resource with a holder and a waiter, and a session, all of one owner.
type target struct{ name, resource, holder, waiter, session string }

// rpc is a method of any service of the server but that for its health.
type rpc struct{ protoreflect.MethodDescriptor }

func (r rpc) name() string { return "/" + string(r.Parent().FullName()) + "/" + string(r.Name()) }

func (r rpc) streams() bool { return r.IsStreamingClient() || r.IsStreamingServer() }

// rpcs returns the methods of all services that the server lists.
func rpcs(t *testing.T, conn grpc.ClientConnInterface, as func(context.Context) context.Context) (all []rpc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(as(t.Context()), harness.HangTimeout)
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	must(t, err)
	must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	listed, err := stream.Recv()
	must(t, err)
	for _, service := range listed.GetListServicesResponse().GetService() {
		if service.GetName() == grpc_health_v1.Health_ServiceDesc.ServiceName {
			continue
		}
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service.GetName()))
		must(t, err)
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			all = append(all, rpc{methods.Get(i)})
		}
	}
	return all
}

// message returns a request for a method about a target. A field that it does not know stays empty; the call of
// an authorized caller shows whether that is enough.
func (r rpc) message(t *testing.T, about target) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.Input().FullName())
	must(t, err)
	message := kind.New()
	fill(message, about)
	return message.Interface()
}

// values has the values of fields by their names, or by the names of message and field.
func values(about target) map[string]any {
	return map[string]any{
		"resource": about.resource, "key": about.resource, "id": about.holder, "owner": "jim", "claim": about.waiter,
		"ttl": 600.0, "ttl_in_seconds": int64(600), "sequence": uint64(1), "limit": uint32(1000), "secret": "0123456789abcdef",
		"type_code": protoreflect.EnumNumber(models.TypeCode_LOCK), "right": protoreflect.EnumNumber(models.Right_RIGHT_HOLD),
		"GetSessionRequest.id": about.session, "EndSessionRequest.id": about.session, "OpenSession.id": "opened-by-caller-" + about.name,
		"OpenSession.owner": nil, "CreateClaimRequest.id": nil,
	}
}

func fill(message protoreflect.Message, about target) {
	known, fields := values(about), message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		value, found := known[string(message.Descriptor().Name())+"."+name]
		if !found {
			value, found = known[name]
		}
		choice := field.ContainingOneof()
		switch {
		case field.IsList(), field.IsMap():
		case choice != nil && !choice.IsSynthetic() && message.WhichOneof(choice) != nil:
		case field.Message() != nil:
			fill(message.Mutable(field).Message(), about)
		case found && value != nil:
			message.Set(field, protoreflect.ValueOf(value))
		}
	}
}

// do calls a method, and returns the answer, or the first one of a stream, as text.
func (r rpc) do(ctx context.Context, conn grpc.ClientConnInterface, request proto.Message) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.HangTimeout)
	defer cancel()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(r.Output().FullName())
	if err != nil {
		return "", err
	}
	answer := kind.New().Interface()
	if !r.streams() {
		err := conn.Invoke(ctx, r.name(), request, answer)
		return prototext.Format(answer), err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: r.IsStreamingClient(), ServerStreams: r.IsStreamingServer()}, r.name())
	if err != nil {
		return "", err
	}
	_ = stream.SendMsg(request) // RecvMsg returns why it ended
	if !r.IsStreamingClient() {
		_ = stream.CloseSend()
	}
	err = stream.RecvMsg(answer)
	return prototext.Format(answer), err
}

// route is an operation over REST, from the OpenAPI document, or a page that not everybody may see.
type route struct {
	id, method, path string
	rpc              string      // that it calls, "" for none
	query            []parameter // required, or decisive for the request
	body             []string    // members
}

type parameter struct {
	In, Name string
	Required bool
	Schema   struct{ Enum []string }
}

func (r route) String() string { return r.method + " " + r.path }

// routes reads the OpenAPI document of a server.
func routes(t *testing.T, client *http.Client, base string) (all []route) {
	t.Helper()
	_, _, text := request(t, client, http.MethodGet, base+"/openapi.json", "")
	type schema struct {
		Ref        string `json:"$ref"`
		Properties map[string]any
	}
	var document struct {
		Paths map[string]map[string]struct {
			ID          string `json:"operationId"`
			Parameters  []parameter
			RequestBody struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	must(t, json.Unmarshal([]byte(text), &document))
	called := rpcsOfRoutes(t)
	for path, operations := range document.Paths {
		for method, operation := range operations {
			r := route{id: operation.ID, method: strings.ToUpper(method), path: path}
			if r.rpc = called[r.String()]; r.id == "watch" {
				r.rpc = models.Locket_Watch_FullMethodName
			}
			for _, p := range operation.Parameters {
				if p.In == "query" && (p.Required || p.Name == "limit" || p.Name == "resource") {
					r.query = append(r.query, p)
				}
			}
			for _, content := range operation.RequestBody.Content {
				body := content.Schema
				if name, found := strings.CutPrefix(body.Ref, "#/components/schemas/"); found {
					body = document.Components.Schemas[name]
				}
				for name := range body.Properties {
					r.body = append(r.body, name)
				}
			}
			all = append(all, r)
		}
	}
	if len(all) < 10 {
		t.Fatalf("routes %v", all)
	}
	return all
}

// rpcsOfRoutes returns the RPC of each route except streams.
func rpcsOfRoutes(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, r := range harness.Routes(t, "../../models/locket.rest.yaml") {
		all[r.Method+" "+strings.ReplaceAll(r.Path, "=**", "")] = r.RPC
	}
	return all
}

// address returns the path and the query of a request about a target.
func (r route) address(about target) string {
	id := about.holder
	if strings.Contains(r.path, "/sessions/") {
		id = about.session
	}
	address := strings.NewReplacer("{id}", id, "{resource}", about.resource, "{key}", about.resource).Replace(r.path)
	for i, p := range r.query {
		separator, value := "&", "x"
		if i == 0 {
			separator = "?"
		}
		switch {
		case p.Name == "limit":
			value = "1000"
		case p.Name == "resource":
			value = about.resource
		case len(p.Schema.Enum) > 0:
			value = p.Schema.Enum[0]
		}
		address += separator + p.Name + "=" + value
	}
	return address
}

// content returns the body of a request about a target, "" for none.
func (r route) content(about target) string {
	members := make(map[string]any)
	for name, value := range map[string]any{"resource": about.resource, "ttl": 600} {
		if slices.Contains(r.body, name) {
			members[name] = value
		}
	}
	if len(members) == 0 {
		return ""
	}
	text, _ := json.Marshal(members) // never fails
	return string(text)
}

// do sends a request, and returns the code, the header and the body of the answer, of an event stream none.
func (r route) do(ctx context.Context, client *http.Client, base string, about target, headers http.Header) (code int, header http.Header, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, harness.HangTimeout)
	defer cancel()
	content := r.content(about)
	req, err := http.NewRequestWithContext(ctx, r.method, base+r.address(about), strings.NewReader(content))
	if err != nil {
		return 0, nil, "", err
	}
	for name, values := range headers {
		req.Header[name] = values
	}
	if content != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.Header.Get("Content-Type") == "text/event-stream" { // it does not end
		return response.StatusCode, response.Header, "", nil
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(text), err
}

// metadataOf returns headers as the metadata of a call.
func metadataOf(headers http.Header) metadata.MD {
	md := make(metadata.MD)
	for name, values := range headers {
		md.Append(name, values...)
	}
	return md
}

// dialTLS connects with a configuration.
func dialTLS(t *testing.T, address string, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// reasonOf returns the code and the reason of an error, as text.
func reasonOf(err error) string {
	return strings.TrimSpace(status.Code(err).String() + " " + models.ReasonOf(err))
}
