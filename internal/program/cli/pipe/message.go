package pipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/locket-service/locket/keychain"
)

// request is a request of the client of `locket keychain`.
type request struct {
	// members are the members of the message. They go back with the answer.
	members  map[string]json.RawMessage
	command  string
	resource string
}

// added are the members of answers and notices that do not come from the request.
var added = []string{"result", "error_message", "notice", "token", "id"}

// parseRequest returns the readable part of a message, also with an error.
func parseRequest(message []byte) (*request, error) {
	r := &request{members: membersOf(message)}
	for name, value := range r.members {
		if !utf8.ValidString(name) || !utf8.Valid(value) {
			delete(r.members, name) // it cannot go back
		}
	}
	for _, name := range added {
		delete(r.members, name)
	}
	wrongSerial := !isSerial(r.members["serial"])
	if wrongSerial {
		delete(r.members, "serial")
	}
	err := check(message)
	switch {
	case err != nil:
		return r, err
	case wrongSerial:
		return r, errors.New("the serial is missing, or neither a number nor a string")
	}
	if r.command, err = textOf(r.members["command"]); err != nil {
		return r, fmt.Errorf("the command is %w", err)
	}
	if name := r.members["resource_name"]; name != nil && string(name) != "null" {
		if r.resource, err = nameOf(name); err != nil {
			return r, fmt.Errorf("the resource_name is %w", err)
		}
	}
	return r, nil
}

// isSerial reports whether a value is a string or a number.
func isSerial(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '"' || value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

// membersOf returns the members of an object up to where it is wrong.
func membersOf(message []byte) map[string]json.RawMessage {
	members := make(map[string]json.RawMessage)
	decoder := json.NewDecoder(bytes.NewReader(message))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return members
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			break
		}
		members[name.(string)] = value
	}
	return members
}

// check returns an error of the message as a whole.
func check(message []byte) error {
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(message, &object); {
	case !utf8.Valid(message):
		return errors.New("the message is not UTF-8")
	case errors.As(err, new(*json.UnmarshalTypeError)):
		return errors.New("the message is not a JSON object")
	case err != nil:
		return fmt.Errorf("the message is not JSON: %w", err)
	}
	return nil
}

// textOf returns a string. It must be Unicode: json.Unmarshal makes the same character of all that is not, and thus one name of two.
func textOf(value json.RawMessage) (text string, err error) {
	switch {
	case len(value) == 0:
		return "", errors.New("missing")
	case value[0] != '"' || json.Unmarshal(value, &text) != nil:
		return "", errors.New("not a string")
	case strings.ContainsRune(text, utf8.RuneError) && !bytes.Contains(value, []byte("\uFFFD")) && !bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)):
		return "", errors.New("not Unicode")
	}
	return text, nil
}

// nameOf is textOf that takes a number for its digits: for Perl, both are the same.
func nameOf(value json.RawMessage) (string, error) {
	var number json.Number
	if value[0] != '"' && json.Unmarshal(value, &number) == nil && number != "" {
		return number.String(), nil
	}
	return textOf(value)
}

// claimOptions returns the options that the args of a claim ask for.
func (r *request) claimOptions() ([]keychain.ClaimOption, error) {
	var args map[string]json.RawMessage
	if given := r.members["args"]; given != nil && json.Unmarshal(given, &args) != nil {
		return nil, errors.New("the args are not an object")
	}
	var options []keychain.ClaimOption
	for name, value := range args {
		if string(value) == "null" {
			continue
		}
		option, err := claimOption(name, value)
		if err != nil {
			return nil, fmt.Errorf("args: %s: %w", name, err)
		}
		options = append(options, option)
	}
	return options, nil
}

func claimOption(name string, value json.RawMessage) (keychain.ClaimOption, error) {
	switch name {
	case "user_data":
		return keychain.WithUserData(value), nil
	case "ttl":
		ttl, err := secondsOf(value)
		return keychain.WithTTL(ttl), err
	case "timeout":
		timeout, err := secondsOf(value)
		return keychain.WithTimeout(timeout), err
	case "mode":
		mode, err := textOf(value)
		if mode := keychain.Mode(mode); err == nil && mode != keychain.Exclusive && mode != keychain.Shared {
			err = fmt.Errorf("%q: must be exclusive or shared", mode)
		}
		return keychain.WithMode(keychain.Mode(mode)), err
	case "owner":
		owner, err := textOf(value)
		return keychain.WithOwner(owner), err
	default:
		return nil, errors.New("unknown; there are user_data, ttl, timeout, mode and owner")
	}
}

// maxSeconds is 100 years.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// secondsOf returns a number of seconds, which may be written as a string: for Perl, both are the same.
func secondsOf(value json.RawMessage) (time.Duration, error) {
	var number json.Number
	if err := json.Unmarshal(value, &number); err != nil {
		return 0, errors.New("not a number of seconds")
	}
	seconds, err := strconv.ParseFloat(number.String(), 64)
	if err != nil || seconds <= 0 || seconds > maxSeconds {
		return 0, fmt.Errorf("%s: must be more than 0 seconds, and 100 years at most", number)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// answer returns the line that answers the request: the request's members and the granted claim's, if any. Without a serial the client
// cannot know what is answered, and gets a notice.
func (r *request) answer(failure error, claim members) []byte {
	line := make(members, len(r.members)+len(claim)+2)
	for name, value := range r.members {
		line[name] = value
	}
	maps.Copy(line, claim)
	line["result"] = "succeeded"
	if failure != nil {
		line["result"], line["error_message"] = "failed", failure.Error()
	}
	if r.members["serial"] == nil {
		line = members{"notice": "error", "error_message": line["error_message"]}
	}
	return line.encode()
}

// members are the members of an object to write.
type members map[string]any

func membersOfClaim(c *keychain.Claim) members {
	m := members{"id": c.ID()}
	if token := c.Token(); token != 0 { // only Locket has them
		m["token"] = token
	}
	return m
}

// encode returns the object as a line.
func (m members) encode() []byte {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // members go back unchanged
	if err := encoder.Encode(m); err != nil {
		panic(err) // every value is JSON already, or a plain one
	}
	return line.Bytes()
}
