package guard

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
)

// TestMethods: the needs of each method can be checked for its message, whoever calls, and the audit log names the
// target of each requested change.
func TestMethods(t *testing.T) {
	rules, err := auth.ParseRules([]byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	nobody := rules.CallerOf(access.Identity{Name: "nobody"})
	for _, name := range methods.Names() {
		m, known := methodOf("/models.Locket/" + name)
		if !known {
			t.Errorf("%s is refused", name)
			continue
		}
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("models.Locket." + name))
		if err != nil {
			t.Fatal(err)
		}
		method := descriptor.(protoreflect.MethodDescriptor)
		input, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		message := input.New().Interface()
		refused := needOf(m)(nobody, message) != nil
		if want := m.Access == methods.ByName && name != "Session" || m.Access == methods.Everything; refused != want {
			t.Errorf("%s: nobody is refused: %t, want %t", name, refused, want)
		}
		if needOf(m)(access.Caller{}, message) != nil {
			t.Errorf("%s is refused without authentication", name)
		}
		all := name == "ResetSessions" // all resources
		if m.Changes && !method.IsStreamingClient() && !all && len(whatOf(message)) == 0 {
			t.Errorf("%s: the audit log does not say what was asked for", name)
		}
	}
	for other, m := range others {
		if needOf(m)(nobody, nil) != nil != (m.Access == methods.Everything) {
			t.Errorf("%s", other)
		}
	}
	if m, known := methodOf("/models.Locket/Other"); known {
		t.Errorf("an unknown method: %v", m)
	}
	for right := range models.Right_name {
		if _, known := rights[models.Right(right)]; known == (right == 0) {
			t.Errorf("the right %d", right)
		}
	}
}
