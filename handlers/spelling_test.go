package handlers_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/locket-service/locket/models"
)

// TestSpelling sends invalid values in each field of each request. Every error must name fields as the .proto file
// does: that field, or one that excludes it.
func TestSpelling(t *testing.T) {
	s := start(t)
	told := 0
	for _, method := range models.Locket_ServiceDesc.Methods {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("models.Locket." + method.MethodName))
		if err != nil {
			t.Fatal(err)
		}
		input := descriptor.(protoreflect.MethodDescriptor).Input()
		for path, field := range fieldsOf(input, "") {
			for _, wrong := range wrongValues(field) {
				message := sample(method.MethodName, input)
				set(message.ProtoReflect(), strings.Split(path, "."), wrong)
				data, err := proto.Marshal(message)
				if err != nil {
					t.Fatal(err)
				}
				for _, violation := range violations(s.raw(t.Context(), "/models.Locket/"+method.MethodName, data)) {
					told++
					if _, known := fieldsOf(input, "")[violation.GetField()]; !known {
						t.Errorf("%s with a wrong %s: the error names %q: %s", method.MethodName, path, violation.GetField(), violation.GetDescription())
					}
				}
			}
		}
	}
	if told < 100 {
		t.Errorf("only %d errors named a field", told)
	}
}

// sample returns a request that is valid by itself.
func sample(method string, input protoreflect.MessageDescriptor) proto.Message {
	samples := map[string]proto.Message{
		"Lock":        &models.LockRequest{Resource: resource("k", "o"), TtlInSeconds: 1},
		"Release":     &models.ReleaseRequest{Resource: resource("k", "o")},
		"CreateClaim": &models.CreateClaimRequest{Resource: "r", Ttl: ptr(1.0)},
		"FetchAll":    &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK},
		"GetQueue":    &models.GetQueueRequest{Resource: "r"},
		"Fetch":       &models.FetchRequest{Key: "k"},
		"UpdateClaim": &models.UpdateClaimRequest{Id: "a", Ttl: ptr(1.0)},
		"AwaitClaim":  &models.AwaitClaimRequest{Id: "a"},
		"EndClaim":    &models.EndClaimRequest{Id: "a"},
	}
	if message := samples[method]; message != nil {
		return message
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(input.FullName())
	if err != nil {
		panic(err)
	}
	return found.New().Interface()
}

// fieldsOf returns the fields of a message and of nested messages, by their paths. A time or a duration counts as one
// field.
func fieldsOf(message protoreflect.MessageDescriptor, prefix string) map[string]protoreflect.FieldDescriptor {
	found := make(map[string]protoreflect.FieldDescriptor)
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		path := prefix + string(field.Name())
		found[path] = field
		if inner := field.Message(); inner != nil && strings.HasPrefix(string(inner.FullName()), "models.") {
			for path, field := range fieldsOf(inner, path+".") {
				found[path] = field
			}
		}
	}
	return found
}

// wrongValues returns values. At least one is invalid, unless the field accepts everything.
func wrongValues(field protoreflect.FieldDescriptor) (values []protoreflect.Value) {
	switch field.Kind() {
	case protoreflect.StringKind:
		for _, text := range []string{"", "\x00", "!", strings.Repeat("x", 70<<10)} {
			values = append(values, protoreflect.ValueOfString(text))
		}
	case protoreflect.EnumKind:
		values = append(values, protoreflect.ValueOfEnum(-1), protoreflect.ValueOfEnum(99), protoreflect.ValueOfEnum(1))
	case protoreflect.DoubleKind:
		values = append(values, protoreflect.ValueOfFloat64(math.NaN()), protoreflect.ValueOfFloat64(-1e300))
	case protoreflect.Uint32Kind:
		values = append(values, protoreflect.ValueOfUint32(0), protoreflect.ValueOfUint32(math.MaxUint32))
	case protoreflect.Uint64Kind:
		values = append(values, protoreflect.ValueOfUint64(0))
	case protoreflect.Int64Kind:
		values = append(values, protoreflect.ValueOfInt64(math.MinInt64))
	case protoreflect.MessageKind: // one that has all numbers at their least
		if field.Message().Fields().ByName("nanos") != nil {
			values = append(values, protoreflect.Value{})
		}
	}
	return values
}

// set sets the field at a path; the zero Value is a time or a duration that is invalid.
func set(message protoreflect.Message, path []string, value protoreflect.Value) {
	field := message.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case len(path) > 1:
		set(message.Mutable(field).Message(), path[1:], value)
	case !value.IsValid():
		inner := message.Mutable(field).Message()
		inner.Set(inner.Descriptor().Fields().ByName("nanos"), protoreflect.ValueOfInt32(math.MinInt32))
	case field.IsList():
		message.Mutable(field).List().Append(value)
	default:
		message.Set(field, value)
	}
}

func violations(err error) []*errdetails.BadRequest_FieldViolation {
	for _, detail := range status.Convert(err).Details() {
		if fields, ok := detail.(*errdetails.BadRequest); ok {
			return fields.GetFieldViolations()
		}
	}
	return nil
}
