package gateway_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/locket-service/locket/models/methods"
)

// TestMethodsOfREST: the methods that have routes are those of which the table of methods says that REST has them. A watch is
// no route of the generated code.
func TestMethodsOfREST(t *testing.T) {
	text, err := os.ReadFile("../models/locket.rest.yaml")
	must(t, err)
	routed := []string{"Watch"}
	for _, found := range regexp.MustCompile(`selector: models\.Locket\.(\w+)`).FindAllSubmatch(text, -1) {
		routed = append(routed, string(found[1]))
	}
	for _, name := range methods.Names() {
		if m, _ := methods.Of("/models.Locket/" + name); m.REST != slices.Contains(routed, name) {
			t.Errorf("%s: the table says %t", name, m.REST)
		}
	}
}
