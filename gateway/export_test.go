package gateway

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// Operation describes an operation for the tests.
type Operation struct {
	Method, Path string
	Stream, Body bool
	// Pattern is the path as a gRPC API configuration has it. Request is the name of the RPC's message; "" for a stream.
	Pattern, Request string
}

// Operations lists the operations.
func Operations() (list []Operation) {
	for _, o := range operations {
		shown := Operation{Method: o.method, Path: o.path, Stream: o.stream(), Body: o.body != nil, Pattern: o.pattern()}
		if !shown.Stream {
			shown.Request = string(o.rpc.request().ProtoReflect().Descriptor().FullName())
		}
		list = append(list, shown)
	}
	return list
}

// Handler returns all that the server serves.
func (s *Server) Handler() (http.Handler, error) { return s.handler() }

// Pages lists the served paths other than operations.
func (s *Server) Pages() ([]string, error) {
	served, err := pages(s.config)
	return slices.Sorted(maps.Keys(served)), err
}

// Parameter is a parameter of an operation, and the fields of the message that it sets.
type Parameter struct {
	Name   string
	Fields []string
}

// Parameters returns the parameters of the query or of the body of an operation, and the message that they make;
// nil if there are none.
func Parameters(method, path string) (list []Parameter, message proto.Message) {
	o := operations[slices.IndexFunc(operations, func(o operation) bool { return o.method == method && o.path == path })]
	parameters := cmp.Or(o.query, o.body)
	if parameters == nil {
		return nil, nil
	}
	for field := range reflect.TypeOf(parameters).Fields() {
		given := reflect.New(reflect.TypeOf(parameters))
		value := reflect.New(field.Type.Elem())
		switch value.Elem().Kind() {
		case reflect.String:
			value.Elem().SetString("7")
		case reflect.Float64:
			value.Elem().SetFloat(7)
		case reflect.Bool:
			value.Elem().SetBool(true)
		case reflect.Uint32:
			value.Elem().SetUint(7)
		case reflect.Int32:
			value.Elem().SetInt(1)
		case reflect.Slice:
			value.Elem().Set(reflect.MakeSlice(value.Elem().Type(), 1, 1))
		case reflect.Struct:
			value.Elem().Set(reflect.ValueOf(time.Unix(7, 0)))
		}
		given.Elem().FieldByIndex(field.Index).Set(value)
		message := o.rpc.request()
		fill(message, given.Interface())
		list = append(list, Parameter{nameOf(field), differing(o.rpc.request(), message)})
	}
	return list, o.rpc.request()
}

// differing returns the names of the fields that differ between two messages.
func differing(a, b proto.Message) (names []string) {
	left, right := a.ProtoReflect(), b.ProtoReflect()
	for i := range left.Descriptor().Fields().Len() {
		field := left.Descriptor().Fields().Get(i)
		if left.Has(field) != right.Has(field) || !left.Get(field).Equal(right.Get(field)) {
			names = append(names, string(field.Name()))
		}
	}
	return names
}

// ChallengesFor returns the challenges that an answer to a request has.
var ChallengesFor = challengesFor

// pattern returns the path in the syntax of a gRPC API configuration.
func (o operation) pattern() string {
	if o.nameInPath() == "id" {
		return o.path
	}
	return strings.Replace(o.path, "}", "=**}", 1)
}
