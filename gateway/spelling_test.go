package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/gateway"
)

// givenOtherwise are the fields that come from a header or from the path of a list.
var givenOtherwise = map[string][]string{
	"PATCH /v1/claims/{id}":  {"if_version"},
	"PUT /v1/claims/{id}":    {"if_version"},
	"DELETE /v1/claims/{id}": {"if_version"},
	"GET /v1/locks":          {"type", "type_code"},
	"GET /v1/presences":      {"type", "type_code"},
}

// headers are the names of fields that a header gives.
var headers = map[string]string{"if_version": "If-Match"}

// TestSpelling: an error in any field of any request has the name that the field has in REST.
func TestSpelling(t *testing.T) {
	service := new(unavailable)
	h, err := gateway.New(gateway.Config{Service: service, Metrics: prometheus.NewRegistry()}).Handler()
	must(t, err)
	bodies := map[string]string{"POST /v1/claims": `{"resource": "r", "ttl": 1}`, "PATCH /v1/claims/{id}": `{"ttl": 1}`, "PUT /v1/claims/{id}": `{"ttl": 1}`}
	for _, o := range gateway.Operations() {
		name := o.Method + " " + o.Path
		parameters, message := gateway.Parameters(o.Method, o.Path)
		if message == nil {
			continue
		}
		spelled := make(map[string]string) // by the service's names
		for _, p := range parameters {
			if len(p.Fields) != 1 {
				t.Errorf("%s: the parameter %s sets the fields %q", name, p.Name, p.Fields)
				continue
			}
			spelled[p.Fields[0]] = p.Name
		}
		if _, parameter, ok := strings.Cut(o.Path, "{"); ok {
			spelled[strings.TrimSuffix(parameter, "}")] = strings.TrimSuffix(parameter, "}")
		}
		for _, field := range givenOtherwise[name] {
			spelled[field] = field
			if header := headers[field]; header != "" {
				spelled[field] = header
			}
		}
		fields := message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := string(fields.Get(i).Name())
			want, given := spelled[field]
			if !given {
				t.Errorf("%s: nothing gives the field %s", name, field)
				continue
			}
			if o.Stream {
				continue // an error of a stream is written by the same function
			}
			service.err = wrongField(t, field)
			got := wrong(t, h, o, bodies[name])
			if len(got) != 1 || got[want] != "is wrong" {
				t.Errorf("%s: what is wrong with the field %s is told as %v, want %s", name, field, got, want)
			}
			delete(spelled, field)
		}
		for field := range spelled {
			if !o.Stream {
				t.Errorf("%s: the message has no field %s", name, field)
			}
		}
	}
}

// wrongField returns the error of a service that says that a field is wrong.
func wrongField(t *testing.T, field string) error {
	t.Helper()
	s, err := status.New(codes.InvalidArgument, field+": is wrong").WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: "is wrong"}},
	})
	must(t, err)
	return s.Err()
}

// wrong returns the body of the answer to a request with a wrong field.
func wrong(t *testing.T, h http.Handler, o gateway.Operation, body string) (told map[string]string) {
	t.Helper()
	path := strings.NewReplacer("{id}", "c", "{resource}", "r?right=hold", "{key}", "k").Replace(o.Path)
	if !strings.Contains(path, "permissions") {
		path, _, _ = strings.Cut(path, "?")
	}
	answer := serve(t.Context(), h, o.Method, path, []byte(body))
	if answer.Code != http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", o.Method, path, answer.Code, answer.Body)
	}
	must(t, json.Unmarshal(answer.Body.Bytes(), &told))
	return told
}

// TestOtherSpellings: a parameter in another spelling is refused, with a hint at the right one; errors of values always
// have the right name.
func TestOtherSpellings(t *testing.T) {
	s := start(t, nil)
	c := client(t, nil)
	for _, test := range []struct {
		method, path, body string
		want               map[string]string
	}{
		{"POST", "/v1/claims/", `{"resource": "r", "ttl": 1, "userData": {}}`, map[string]string{"userData": "unknown parameter; it is spelled user_data"}},
		{"POST", "/v1/claims/", `{"resource": "r", "ttl": 1, "WaitTTL": 5}`, map[string]string{"WaitTTL": "unknown parameter; it is spelled wait_ttl"}},
		{"POST", "/v1/claims/", `{"resource": "r", "ttl": 1, "type_code": 1}`, map[string]string{"type_code": "unknown parameter"}},
		{"GET", "/v1/claims/?minimumTtl=1", "", map[string]string{"minimumTtl": "unknown parameter; it is spelled minimum_ttl"}},
		{"GET", "/v1/claims/?page-token=x", "", map[string]string{"page-token": "unknown parameter; it is spelled page_token"}},
	} {
		a := do(t, c, test.method, s.url+test.path, test.body)
		got := make(map[string]string)
		must(t, json.Unmarshal([]byte(a.body), &got))
		if a.code != http.StatusBadRequest || !maps.Equal(got, test.want) {
			t.Errorf("%s %s %s: %d %v, want %v", test.method, test.path, test.body, a.code, got, test.want)
		}
	}
	// Each parameter with a value that cannot be right.
	for _, o := range gateway.Operations() {
		parameters, _ := gateway.Parameters(o.Method, o.Path)
		path := s.url + strings.NewReplacer("{id}", "nobody", "{resource}", "r", "{key}", "k").Replace(o.Path)
		for _, p := range parameters {
			var a answer
			if slices.Contains([]string{"POST", "PATCH", "PUT"}, o.Method) {
				a = do(t, c, o.Method, path, fmt.Sprintf(`{%q: [null]}`, p.Name))
			} else {
				a = do(t, c, o.Method, path+"/?"+p.Name+"=%00", "")
			}
			got := make(map[string]string)
			must(t, json.Unmarshal([]byte(a.body), &got))
			free := p.Name == "user_data" // any JSON
			if a.code == http.StatusBadRequest && got[p.Name] == "" && !free || a.code < 400 || a.code >= 500 {
				t.Errorf("%s %s with a wrong %s: %d %s", o.Method, o.Path, p.Name, a.code, a.body)
			}
			for name := range got {
				known := slices.ContainsFunc(parameters, func(other gateway.Parameter) bool { return other.Name == name })
				if a.code == http.StatusBadRequest && !known {
					t.Errorf("%s %s with a wrong %s: the answer names %s", o.Method, o.Path, p.Name, name)
				}
			}
		}
	}
}
