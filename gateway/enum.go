package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

// enum is a type with a fixed set of named values.
type enum interface{ Names() []string }

// statuses is a list of statuses, separated by commas.
type statuses []models.Status

// Names implements enum: the names of the items.
func (statuses) Names() []string { return jsonview.Status(0).Names() }

func (list *statuses) UnmarshalJSON(text []byte) error {
	var names string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	for name := range strings.SplitSeq(names, ",") {
		var status jsonview.Status
		if err := status.UnmarshalText([]byte(name)); err != nil {
			return err
		}
		*list = append(*list, models.Status(status))
	}
	return nil
}

// newStatus is a status that a client may set.
type newStatus jsonview.Status

// newStatusNames are the statuses of the REST requirements.
var newStatusNames = []string{"aborted", "active", "released", "revoked", "withdrawn"}

// Names implements enum.
func (newStatus) Names() []string { return newStatusNames }

func (s *newStatus) UnmarshalJSON(text []byte) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil || !slices.Contains(newStatusNames, name) {
		return fmt.Errorf("must be one of %q, not %s", newStatusNames, text)
	}
	return (*jsonview.Status)(s).UnmarshalText([]byte(name))
}
