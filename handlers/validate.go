package handlers

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/protoadapt"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// The limits of requests.
const (
	maxName    = db.MaxName // bytes of a resource's name, an owner, a reason
	maxData    = 64 << 10   // bytes of a value, of user data
	maxNesting = 1000       // levels of user data: many JSON parsers have a limit (Go's is 10,000), and an answer adds levels
	maxID      = 128        // bytes of a claim's id
	maxLimit   = 1000       // claims in one page, holders and waiters in one queue
	maxOffset  = 1 << 20    // claims skipped before a page

	maxTTLSeconds = 100 * 365.25 * 24 * 60 * 60
	// Clients are not expected to ask about a claim more often than this.
	minWaitTTLSeconds = 1

	defaultLimit = 10
	defaultQueue = 100 // waiters in one queue
)

// fieldErrors has the invalid fields of a request, with their limits.
type fieldErrors []fieldError

type fieldError struct{ field, problem string }

func (e fieldErrors) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = f.field + ": " + f.problem
	}
	return strings.Join(lines, "; ")
}

// details returns the errors as google.rpc.BadRequest, nil if there are none.
func (e fieldErrors) details() []protoadapt.MessageV1 {
	if len(e) == 0 {
		return nil
	}
	wrong := &errdetails.BadRequest{}
	for _, f := range e {
		wrong.FieldViolations = append(wrong.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: f.field, Description: f.problem})
	}
	return []protoadapt.MessageV1{protoadapt.MessageV1Of(wrong)}
}

// wrongField is an error of Cloud Foundry's Locket together with the error of a field.
func wrongField(sentinel error, field, format string, args ...any) error {
	return fmt.Errorf("%w: %w", sentinel, fieldErrors{{field, fmt.Sprintf(format, args...)}})
}

func wrongType(field string) error {
	return wrongField(models.ErrInvalidType, field, "must be %q or %q, and agree with type_code", models.LockType, models.PresenceType)
}

// check collects the errors of a request: the first one of each field.
type check struct{ wrong fieldErrors }

// err returns nil if there are no errors.
func (c *check) err() error {
	if len(c.wrong) == 0 {
		return nil
	}
	return c.wrong
}

func (c *check) fail(field, format string, args ...any) {
	if slices.ContainsFunc(c.wrong, func(known fieldError) bool { return known.field == field }) {
		return
	}
	c.wrong = append(c.wrong, fieldError{field, fmt.Sprintf(format, args...)})
}

// that calls fail unless ok.
func (c *check) that(ok bool, field, format string, args ...any) {
	if !ok {
		c.fail(field, format, args...)
	}
}

func (c *check) name(field, name string) {
	if name == "" {
		c.fail(field, "is required")
		return
	}
	c.text(field, name)
}

// text checks an optional name.
func (c *check) text(field, text string) {
	switch {
	case len(text) > maxName:
		c.fail(field, "has %d bytes, and at most %d are allowed", len(text), maxName)
	case !utf8.ValidString(text):
		c.fail(field, "is not valid UTF-8")
	case strings.IndexByte(text, 0) >= 0:
		c.fail(field, "contains a NUL byte")
	}
}

func (c *check) data(field, data string) {
	c.that(len(data) <= maxData, field, "has %d bytes, and at most %d are allowed", len(data), maxData)
	c.that(utf8.ValidString(data), field, "is not valid UTF-8")
}

func (c *check) json(field, data string) {
	c.data(field, data)
	c.that(json.Valid([]byte(data)), field, "is not valid JSON")
	c.that(nesting(data) <= maxNesting, field, "nests more than %d levels deep", maxNesting)
}

// nesting returns how many levels of arrays and objects a text of JSON has.
func nesting(text string) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == '[' || c == '{':
			level++
			deepest = max(deepest, level)
		case c == ']' || c == '}':
			level--
		}
	}
	return deepest
}

func (c *check) seconds(field string, seconds *float64, lowest, highest float64) *time.Duration {
	if seconds == nil {
		return nil
	}
	if math.IsNaN(*seconds) || *seconds < lowest || *seconds > highest {
		c.fail(field, "must be a number of seconds between %.0f and %.0f", lowest, highest)
		return nil
	}
	d := time.Duration(math.Round(*seconds*1e6)) * time.Microsecond
	return &d
}

func (c *check) ttl(seconds *float64) *time.Duration {
	return c.seconds("ttl", seconds, 0, maxTTLSeconds)
}

// limit returns how many items to return.
func (c *check) limit(limit *uint32, otherwise int) int {
	if limit == nil {
		return otherwise
	}
	c.that(0 < *limit && *limit <= maxLimit, "limit", "must be between 1 and %d", maxLimit)
	return int(*limit)
}

// token returns the fencing token in a request, 0 if there is none.
func (c *check) token(token *uint64) uint64 {
	if token == nil {
		return 0
	}
	c.that(*token != 0, "token", "must not be 0")
	return *token
}

func (c *check) units(mode models.Mode) claim.Units {
	units, known := unitsOfModes[mode]
	c.that(known, "mode", "unknown mode %d", mode)
	return units
}

// unitsOfModes are the units of the modes that clients can ask for.
var unitsOfModes = map[models.Mode]claim.Units{models.Mode_MODE_EXCLUSIVE: claim.Exclusive, models.Mode_MODE_SHARED: claim.Shared}

// modeOf returns the mode of a claim as clients know it.
func modeOf(units claim.Units) models.Mode {
	if units.All() {
		return models.Mode_MODE_EXCLUSIVE
	}
	return models.Mode_MODE_SHARED
}

func (c *check) typeCode(code models.TypeCode) claim.Type {
	_, known := models.TypeCode_name[int32(code)]
	c.that(known, "type_code", "unknown type %d", code)
	return claim.Type(code)
}

// statusOf returns an invalid status for an unknown number: the numbers of the protocol are wider than claim.Status.
func statusOf(status models.Status) claim.Status {
	if _, known := models.Status_name[int32(status)]; !known {
		return math.MaxUint8
	}
	return claim.Status(status)
}

func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && !strings.ContainsRune("-._~", rune(c)) {
			return false
		}
	}
	return strings.Trim(id, ".") != "" // "." and ".." are removed from URL paths
}

// lockType returns the type of a lock from the two fields that have it. Neither is required (as in Cloud Foundry's
// Locket); if both are set they must agree. field is the path of the field with the type's name, for errors.
func lockType(field string, code models.TypeCode, name string) (claim.Type, error) {
	byName := map[string]models.TypeCode{
		"": models.TypeCode_UNKNOWN, models.LockType: models.TypeCode_LOCK, models.PresenceType: models.TypeCode_PRESENCE,
	}
	named, known := byName[name]
	_, valid := models.TypeCode_name[int32(code)]
	switch {
	case !known, !valid:
		return 0, wrongType(field)
	case code == models.TypeCode_UNKNOWN:
		return claim.Type(named), nil
	case name != "" && named != code:
		return 0, wrongType(field)
	}
	return claim.Type(code), nil
}

func typeName(t claim.Type) string {
	switch t {
	case claim.Lock:
		return models.LockType
	case claim.Presence:
		return models.PresenceType
	default:
		return ""
	}
}
