package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/program/cli/exit"
)

// invalidFile is the error of Cloud Foundry's Locket for a wrong configuration file.
const invalidFile = "invalid-config-file"

// WithConfig returns the sources of a command whose flag config names a JSON file: an object whose members have the names of the flags,
// with - or _. It may also be a file of Cloud Foundry's Locket: what of that has no effect here is in Ignored. The flag may be left out; it
// may not be empty, as with a variable that is not set. An error is the user's.
func WithConfig(flags *pflag.FlagSet) (*Sources, error) {
	s := New(flags)
	file, source := s.LookUp("config")
	switch {
	case file == "" && source != "":
		return s, exit.Usagef("%s: %s names no file", invalidFile, source)
	case file == "":
		return s, nil
	}
	settings, err := s.readConfig(file)
	if err != nil {
		return s, exit.Usagef("%s: the config file %s: %w", invalidFile, file, err)
	}
	s.file = values{settings, func(string) string { return file }}
	return s, nil
}

// readConfig returns the values of a JSON file by the names of the flags. A name that it does not
// know is an error, but in a file of Cloud Foundry's Locket.
func (s *Sources) readConfig(file string) (settings map[string]string, err error) {
	content, err := follow.Read("it cannot be used", file)
	if err != nil {
		return nil, err
	}
	members, err := membersOf(content)
	if err != nil {
		return nil, err
	}
	known := func(flag string) bool { return s.flags.Lookup(flag) != nil && flag != "config" && flag != "help" }
	if isCloudFoundry(members) {
		settings, s.Ignored, err = fromCloudFoundry(members, known)
		return settings, err
	}
	settings = make(map[string]string)
	for name, value := range members {
		flag := strings.ReplaceAll(name, "_", "-")
		if !known(flag) {
			return nil, fmt.Errorf("unknown setting %q", name)
		}
		if value == structured {
			return nil, notScalar(name)
		}
		settings[flag] = value
	}
	return settings, nil
}

// structured is the text of a member that is an array or an object. No setting is one.
const structured = "\x00structured"

func notScalar(name string) error {
	return fmt.Errorf("%q: must be a string, a number, true or false", name)
}

// membersOf returns the members of a JSON object as text, without nulls. A setting may be there once, in one spelling.
func membersOf(content []byte) (map[string]string, error) {
	if err := checkJSON(content); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if begin, err := decoder.Token(); err != nil {
		return nil, err
	} else if begin != json.Delim('{') {
		return nil, errors.New("must be a JSON object")
	}
	members, seen := make(map[string]string), make(map[string]string)
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		flag := strings.ReplaceAll(name, "_", "-")
		if before, again := seen[flag]; again {
			return nil, fmt.Errorf("%q is given more than once, before as %q", name, before)
		}
		seen[flag] = name
		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		switch value.(type) {
		case nil:
		case map[string]any, []any:
			members[name] = structured
		default:
			members[name] = fmt.Sprint(value)
		}
	}
	return members, nil
}

// checkJSON returns an error with the line unless content is one value in JSON.
func checkJSON(content []byte) error {
	err := json.Unmarshal(content, new(json.RawMessage))
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not JSON: line %d: %w", 1+bytes.Count(content[:wrong.Offset], []byte("\n")), err)
	}
	return err
}
