package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// problems are the errors of a request's parameters, by parameter name.
type problems map[string]string

// add adds other errors. The first error of a parameter is kept.
func (p problems) add(others problems) {
	for name, problem := range others {
		if p[name] == "" {
			p[name] = problem
		}
	}
}

// parameters are the parameters of a request, by name: the members of a body, or a query.
type parameters map[string]json.RawMessage

// maxMembers is the maximum number of members of a body, and of parameters in a query: several times as many as the
// largest operation has. More are refused before any is decoded, because even callers without rights can send them.
const maxMembers = 100

// parseBody returns the members of a JSON object. A repeated member is an error, because some parsers take the first and others the last.
func parseBody(body []byte) (parameters, problems) {
	if !utf8.Valid(body) {
		return nil, problems{"message": "the body is not valid UTF-8"}
	}
	var mismatch *json.UnmarshalTypeError
	switch err := json.Unmarshal(body, &struct{}{}); { // which decodes no member
	case errors.As(err, &mismatch):
		return nil, problems{"message": "the body must be a JSON object, and is of type " + mismatch.Value}
	case err != nil:
		return nil, problems{"message": "the body must be a JSON object: " + err.Error()}
	case string(bytes.TrimSpace(body)) == "null":
		return nil, problems{"message": "the body must be a JSON object, and is null"}
	}
	members, wrong := make(parameters), make(problems)
	decoder := json.NewDecoder(bytes.NewReader(body))
	_, _ = decoder.Token() // the body is known to be an object, and valid
	for n := 0; decoder.More(); n++ {
		if n == maxMembers {
			return nil, problems{"message": fmt.Sprintf("the body has more than %d members", maxMembers)}
		}
		token, _ := decoder.Token()
		name, _ := token.(string)
		if _, again := members[name]; again {
			wrong[name] = "is given more than once"
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			break
		}
		members[name] = value
	}
	return members, wrong
}

// parseQuery returns the parameters of a query, as JSON values of the types of into's fields.
func parseQuery(query string, into any) (parameters, problems) {
	if strings.Count(query, "&") >= maxMembers {
		return nil, problems{"message": fmt.Sprintf("the query has more than %d parameters", maxMembers)}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, problems{"message": "the query cannot be read: " + err.Error()}
	}
	members, wrong := make(parameters), make(problems)
	numbers, truths := make(map[string]bool), make(map[string]bool)
	for field := range reflect.TypeOf(into).Elem().Fields() {
		kind := field.Type.Elem().Kind()
		numbers[nameOf(field)] = kind == reflect.Float64 || kind == reflect.Uint32
		truths[nameOf(field)] = kind == reflect.Bool
	}
	for name, given := range values {
		switch {
		case len(given) > 1:
			wrong[name] = "is given more than once"
		case !utf8.ValidString(given[0]):
			wrong[name] = "is not valid UTF-8"
		case numbers[name] && strings.Trim(given[0], "0123456789+-.eE") == "":
			members[name] = json.RawMessage(given[0])
		case truths[name] && (given[0] == "true" || given[0] == "false"):
			members[name] = json.RawMessage(given[0])
		default:
			quoted, _ := json.Marshal(given[0]) // encoding a string cannot fail
			members[name] = quoted
		}
	}
	return members, wrong
}

// into decodes the parameters into a struct of pointers, by its JSON names, and returns the errors.
func (p parameters) into(target any) problems {
	wrong := make(problems)
	fields := reflect.ValueOf(target).Elem()
	for i := range fields.NumField() {
		field, tag := fields.Field(i), fields.Type().Field(i).Tag
		name := nameOf(fields.Type().Field(i))
		value, given := p[name]
		delete(p, name)
		if !given || string(value) == "null" {
			if tag.Get("required") != "" {
				wrong[name] = required(field.Type().Elem())
			}
			continue
		}
		if err := json.Unmarshal(value, field.Addr().Interface()); err != nil || lossy(value, field) {
			wrong[name] = "must be " + describe(field.Type().Elem(), tag) + hint(value, field.Type().Elem())
		}
	}
	for name := range p {
		wrong[name] = "unknown parameter" + spelled(name, fields.Type())
	}
	return wrong
}

// required is the problem of a missing parameter of a type.
func required(t reflect.Type) string {
	if _, ok := reflect.Zero(t).Interface().(enum); ok {
		return "is required; it must be " + describe(t, "")
	}
	return "is required"
}

// spelled returns a hint if a parameter is a known one in another spelling, such as userData for user_data.
func spelled(name string, parameters reflect.Type) string {
	plain := strings.NewReplacer("_", "", "-", "").Replace
	for field := range parameters.Fields() {
		if known := nameOf(field); strings.EqualFold(plain(name), plain(known)) {
			return "; it is spelled " + known
		}
	}
	return ""
}

func nameOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// fieldOf returns the name of the message's field that a parameter sets.
func fieldOf(parameter reflect.StructField) string {
	return cmp.Or(parameter.Tag.Get("field"), nameOf(parameter))
}

// lossy reports whether decoding a string has lost something: half of a surrogate pair becomes U+FFFD, so that two
// names could become one.
func lossy(value json.RawMessage, field reflect.Value) bool {
	if field.Elem().Kind() != reflect.String {
		return false
	}
	const replacement = "\uFFFD"
	written := strings.Count(string(value), replacement) + strings.Count(strings.ToLower(string(value)), `\ufffd`)
	return strings.Count(field.Elem().String(), replacement) > written
}

// hint returns a hint about the cause of an invalid value in a query: a "+" that is not encoded means a space.
func hint(value json.RawMessage, t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() && bytes.IndexByte(value, ' ') >= 0 {
		return `; in a query the "+" of a time zone is written %2B`
	}
	return ""
}

// describe describes the values of a parameter's type, within the limits of its tag.
func describe(t reflect.Type, tag reflect.StructTag) string {
	if named, ok := reflect.Zero(t).Interface().(enum); ok {
		if t.Kind() == reflect.Slice {
			return "separated by commas, some of " + strings.Join(named.Names(), ", ")
		}
		return "one of " + strings.Join(named.Names(), ", ")
	}
	if t == reflect.TypeFor[claimID]() {
		return "a string that is not empty; leave it out to have one chosen"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint32:
		return fmt.Sprintf("a whole number between %s and %s", cmp.Or(tag.Get("minimum"), "0"), tag.Get("maximum"))
	case reflect.Struct:
		return "a time as in RFC 3339, such as 2026-11-21T17:47:02.5Z"
	default:
		return "a string of valid Unicode"
	}
}
