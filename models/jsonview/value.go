package jsonview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

// TimeFormat is RFC 3339 with microseconds, the form of every time.
const TimeFormat = "2006-01-02T15:04:05.000000Z07:00"

// Timestamp is a time in TimeFormat.
type Timestamp time.Time

func timestampOf(t *timestamppb.Timestamp) Timestamp { return Timestamp(t.AsTime()) }

func (t Timestamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Time(t).Format(TimeFormat))
}

// Seconds is a number of seconds, with a resolution of a microsecond. It is always encoded as a float, even if it is
// whole.
type Seconds float64

func (s Seconds) MarshalJSON() ([]byte, error) {
	exact := math.Round(float64(s)*1e6) / 1e6 // a sum of microseconds may have a rounding error
	if exact == math.Trunc(exact) {
		return strconv.AppendFloat(nil, exact, 'f', 1, 64), nil
	}
	return strconv.AppendFloat(nil, exact, 'f', -1, 64), nil
}

// Duration returns the seconds as a duration, between 0 and a century and a half, which is longer than every TTL.
func (s Seconds) Duration() time.Duration {
	return time.Duration(math.Min(math.Max(float64(s), 0)*1e9, math.MaxInt64/2))
}

// JSON is a JSON text, without the insignificant space in requests over REST.
type JSON string

func (j *JSON) UnmarshalJSON(text []byte) error {
	var compact bytes.Buffer
	err := json.Compact(&compact, text)
	*j = JSON(compact.String())
	return err
}

func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// The enumerations of the service by their names in JSON. A value without a name, which a newer server may send, is
// null.
type (
	Mode   models.Mode
	Status models.Status
	Type   models.TypeCode
	Right  models.Right
	// Order orders a list of claims, and ResourceOrder a list of resources.
	Order         models.Order
	ResourceOrder models.ResourceOrder
)

var (
	modeNames   = lower(models.Mode_name, "MODE_")
	statusNames = lower(models.Status_name, "STATUS_")
	typeNames   = lower(models.TypeCode_name, "")
	rightNames  = lower(models.Right_name, "RIGHT_")
	orderNames  = lower(models.Order_name, "ORDER_")

	resourceOrderNames = lower(models.ResourceOrder_name, "RESOURCE_ORDER_")
)

// lower returns the names of an enumeration in JSON; the unspecified value is "".
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

// Names returns all names.
func (Mode) Names() []string { return slices.Clone(modeNames) }

// Names returns all names.
func (Status) Names() []string { return slices.Clone(statusNames[1:]) }

// Names returns all names.
func (Type) Names() []string { return slices.Clone(typeNames[1:]) }

// Names returns all names.
func (Right) Names() []string { return slices.Clone(rightNames[1:]) }

// Names returns all names.
func (Order) Names() []string { return slices.Clone(orderNames) }

// Names returns all names.
func (ResourceOrder) Names() []string { return slices.Clone(resourceOrderNames) }

// String returns the name, or the number of a value without a name.
func (m Mode) String() string { return nameOf(modeNames, int(m)) }

// String returns the name, or the number of a value without a name.
func (s Status) String() string { return nameOf(statusNames, int(s)) }

// String returns the name, or the number of a value without a name.
func (t Type) String() string { return nameOf(typeNames, int(t)) }

func (m Mode) MarshalJSON() ([]byte, error) { return encodeName(modeNames, int(m)) }

func (s Status) MarshalJSON() ([]byte, error) { return encodeName(statusNames, int(s)) }

func (t Type) MarshalJSON() ([]byte, error) { return encodeName(typeNames, int(t)) }

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (r *Right) UnmarshalText(name []byte) error {
	return decodeName(rightNames, name, (*int32)(r))
}

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (o *Order) UnmarshalText(name []byte) error { return decodeName(orderNames, name, (*int32)(o)) }

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (o *ResourceOrder) UnmarshalText(name []byte) error {
	return decodeName(resourceOrderNames, name, (*int32)(o))
}

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (m *Mode) UnmarshalText(name []byte) error { return decodeName(modeNames, name, (*int32)(m)) }

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (s *Status) UnmarshalText(name []byte) error {
	return decodeName(statusNames, name, (*int32)(s))
}

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (t *Type) UnmarshalText(name []byte) error { return decodeName(typeNames, name, (*int32)(t)) }

func nameOf(names []string, number int) string {
	if number < 0 || number >= len(names) || names[number] == "" {
		return strconv.Itoa(number)
	}
	return names[number]
}

func encodeName(names []string, number int) ([]byte, error) {
	if number < 0 || number >= len(names) || names[number] == "" {
		return []byte("null"), nil
	}
	return json.Marshal(names[number])
}

func decodeName(names []string, name []byte, number *int32) error {
	i := slices.Index(names, string(name))
	if i < 0 || len(name) == 0 {
		return fmt.Errorf("must be one of %q, not %q", names, name)
	}
	*number = int32(i)
	return nil
}
