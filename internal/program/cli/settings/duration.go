package settings

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// DurationHelp describes a duration.
const DurationHelp = "a number of seconds, or with units as in 90s, 5m, 1h30m, 7d"

var (
	seconds = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)
	days    = regexp.MustCompile(`^([+-]?)([0-9]+)d(.*)$`)
)

// ParseDuration reads a duration as people write it: as time.ParseDuration does, with days of 24 h in front (7d12h), and
// in seconds if there is no unit.
func ParseDuration(text string) (time.Duration, error) {
	if seconds.MatchString(text) {
		text += "s"
	}
	sign, hours := "", ""
	if parts := days.FindStringSubmatch(text); parts != nil {
		n, err := strconv.ParseInt(parts[2], 10, 32)
		if err != nil {
			return 0, errors.New("must be " + DurationHelp)
		}
		sign, hours, text = parts[1], strconv.FormatInt(24*n, 10)+"h", parts[3]
	}
	d, err := time.ParseDuration(sign + hours + text)
	if err != nil {
		return 0, errors.New("must be " + DurationHelp)
	}
	return d, nil
}

// IsDuration reports whether a flag is a duration.
func IsDuration(flag *pflag.Flag) bool { return flag.Value.Type() == "duration" }

// TakeDurations has all durations among some flags read by ParseDuration.
func TakeDurations(flags *pflag.FlagSet) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, done := flag.Value.(duration); !done && IsDuration(flag) {
			flag.Value, flag.DefValue = duration{flag.Value}, brief(flag.DefValue)
		}
	})
}

// brief returns a text of time.Duration without zero units: 1m, 90d, 0.
func brief(text string) string {
	d, err := time.ParseDuration(text)
	const day = 24 * time.Hour
	switch {
	case err != nil:
		return text
	case d == 0:
		return "0"
	case d >= 2*day && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d%time.Hour == 0:
		return strings.TrimSuffix(text, "0m0s")
	case d%time.Minute == 0:
		return strings.TrimSuffix(text, "0s")
	}
	return text
}

// duration is the value of a flag that is read by ParseDuration.
type duration struct{ pflag.Value }

// Set implements pflag.Value.
func (d duration) Set(text string) error {
	parsed, err := ParseDuration(text)
	if err != nil {
		return err
	}
	return d.Value.Set(parsed.String())
}
