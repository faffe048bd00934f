package jsonview

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
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
