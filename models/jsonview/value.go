package jsonview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
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

// The enumerations of the service.
type (
	Mode   = Named[models.Mode]
	Status = Named[models.Status]
	Type   = Named[models.TypeCode]
	Right  = Named[models.Right]
	// Order orders a list of claims, and ResourceOrder a list of resources.
	Order         = Named[models.Order]
	ResourceOrder = Named[models.ResourceOrder]
)

// names are the names in JSON of each enumeration, by their numbers.
var names = map[protoreflect.EnumDescriptor][]string{
	models.Mode(0).Descriptor():          lower(models.Mode_name, "MODE_"),
	models.Status(0).Descriptor():        lower(models.Status_name, "STATUS_"),
	models.TypeCode(0).Descriptor():      lower(models.TypeCode_name, ""),
	models.Right(0).Descriptor():         lower(models.Right_name, "RIGHT_"),
	models.Order(0).Descriptor():         lower(models.Order_name, "ORDER_"),
	models.ResourceOrder(0).Descriptor(): lower(models.ResourceOrder_name, "RESOURCE_ORDER_"),
}

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

// Named is a value of an enumeration, which has a name in JSON. A value without a name, which a newer server may send, is
// null.
type Named[E protoreflect.Enum] int32

func (n Named[E]) names() []string {
	var enumeration E
	return names[enumeration.Descriptor()]
}

// name returns the name, "" for a value without one.
func (n Named[E]) name() string {
	if names := n.names(); n >= 0 && int(n) < len(names) {
		return names[n]
	}
	return ""
}

// Names returns all names of the enumeration.
func (n Named[E]) Names() []string {
	return slices.DeleteFunc(slices.Clone(n.names()), func(name string) bool { return name == "" })
}

// String returns the name, or the number of a value without a name.
func (n Named[E]) String() string { return cmp.Or(n.name(), strconv.Itoa(int(n))) }

func (n Named[E]) MarshalJSON() ([]byte, error) {
	if name := n.name(); name != "" {
		return json.Marshal(name)
	}
	return []byte("null"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler, and so decodes JSON too.
func (n *Named[E]) UnmarshalText(name []byte) error {
	number := slices.Index(n.names(), string(name))
	if number < 0 || len(name) == 0 {
		return fmt.Errorf("must be one of %q, not %q", n.Names(), name)
	}
	*n = Named[E](number)
	return nil
}
