package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/locket-service/locket/models"
)

// The enumerations of the service under their names in JSON.
type (
	claimMode   models.Mode
	claimStatus models.Status
	newStatus   models.Status // one that a client may ask for
	lockType    models.TypeCode
)

// enum is a type with a few values that have names.
type enum interface{ names() []string }

var (
	modeNames     = lower(models.Mode_name, "MODE_")
	statusNames   = lower(models.Status_name, "STATUS_")
	lockTypeNames = lower(models.TypeCode_name, "")
	// newStatusNames are those of seed 4.
	newStatusNames = []string{"aborted", "active", "released", "revoked", "withdrawn"}
)

// lower returns the names of an enumeration as JSON has them; what stands for none has "".
func lower(names map[int32]string, prefix string) []string {
	list := make([]string, len(names))
	for number, name := range names {
		list[number] = strings.ToLower(strings.TrimPrefix(name, prefix))
		if list[number] == "unspecified" || list[number] == "unknown" {
			list[number] = ""
		}
	}
	return list
}

func (claimMode) names() []string   { return modeNames }
func (claimStatus) names() []string { return statusNames[1:] }
func (newStatus) names() []string   { return newStatusNames }
func (lockType) names() []string    { return lockTypeNames[1:] }

// MarshalJSON implements json.Marshaler.
func (m claimMode) MarshalJSON() ([]byte, error) { return encodeName(modeNames, int(m)) }

// MarshalJSON implements json.Marshaler.
func (s claimStatus) MarshalJSON() ([]byte, error) { return encodeName(statusNames, int(s)) }

// MarshalJSON implements json.Marshaler.
func (t lockType) MarshalJSON() ([]byte, error) { return encodeName(lockTypeNames, int(t)) }

// UnmarshalJSON implements json.Unmarshaler.
func (m *claimMode) UnmarshalJSON(text []byte) error { return decodeName(modeNames, text, (*int32)(m)) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *claimStatus) UnmarshalJSON(text []byte) error {
	return decodeName(statusNames, text, (*int32)(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *newStatus) UnmarshalJSON(text []byte) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil || !slices.Contains(newStatusNames, name) {
		return fmt.Errorf("%s is none of %q", text, newStatusNames)
	}
	return decodeName(statusNames, text, (*int32)(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *lockType) UnmarshalJSON(text []byte) error {
	return decodeName(lockTypeNames, text, (*int32)(t))
}

// encodeName returns null for what has no name.
func encodeName(names []string, number int) ([]byte, error) {
	if number >= len(names) || names[number] == "" {
		return []byte("null"), nil
	}
	return json.Marshal(names[number])
}

func decodeName(names []string, text []byte, number *int32) error {
	var name string
	if err := json.Unmarshal(text, &name); err != nil {
		return err
	}
	i := slices.Index(names, name)
	if i < 0 || name == "" {
		return fmt.Errorf("%q is none of %q", name, names)
	}
	*number = int32(i)
	return nil
}
