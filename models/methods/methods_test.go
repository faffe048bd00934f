package methods_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// TestTable: exactly the RPCs of the service are in the table, and their properties are consistent.
func TestTable(t *testing.T) {
	if len(methods.Names()) < 20 {
		t.Fatalf("the service has %v", methods.Names())
	}
	for _, name := range methods.Names() {
		m, known := methods.Of("/models.Locket/" + name)
		if !known || m.Access == 0 {
			t.Errorf("%s has no line in the table of methods", name)
			continue
		}
		byRight := m.Access == methods.ByName || m.Access == methods.Everything || m.Resource != nil
		if byRight != (len(m.Rights) > 0) || m.Access == methods.ByName && m.Resource == nil {
			t.Errorf("%s: its rights and its resource do not go together", name)
		}
		if slices.Contains(m.Rights, models.Right_RIGHT_UNSPECIFIED) {
			t.Errorf("%s needs no right that there is", name)
		}
		if m.Keeps && !m.Changes {
			t.Errorf("%s keeps what it does not change", name)
		}
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("models.Locket." + name))
		if err != nil {
			t.Fatal(err)
		}
		if method := descriptor.(protoreflect.MethodDescriptor); (method.IsStreamingServer() || method.IsStreamingClient()) && m.Lasts == methods.Short {
			t.Errorf("%s is a stream, and lasts", name)
		}
	}
	if lines := methods.Lines(); len(lines) != len(methods.Names()) {
		t.Errorf("lines for %v, and the service has %v", lines, methods.Names())
	}
	for _, other := range []string{"", "Lock", "/models.Locket/", "/models.Other/Lock"} {
		if _, known := methods.Of(other); known {
			t.Errorf("%q has a line", other)
		}
	}
}
