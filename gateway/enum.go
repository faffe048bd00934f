package gateway

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/locket-service/locket/models/jsonview"
)

// enum is a type with a few values that have names.
type enum interface{ Names() []string }

// newStatus is a status that a client may ask for.
type newStatus jsonview.Status

// newStatusNames are those of the REST requirements.
var newStatusNames = []string{"aborted", "active", "released", "revoked", "withdrawn"}

// Names implements enum.
func (newStatus) Names() []string { return newStatusNames }

// UnmarshalJSON implements json.Unmarshaler.
func (s *newStatus) UnmarshalJSON(text []byte) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil || !slices.Contains(newStatusNames, name) {
		return fmt.Errorf("must be one of %q, not %s", newStatusNames, text)
	}
	return (*jsonview.Status)(s).UnmarshalText([]byte(name))
}
