package base

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	MaxResource = 1024
	MaxValue    = 64 << 10
)

// CheckResource returns an error if the name of a resource, or a prefix, is invalid. A name that is not UTF-8 could not
// even be sent.
func CheckResource(name string) error {
	switch {
	case name == "":
		return errors.New("the resource is missing")
	case len(name) > MaxResource:
		return fmt.Errorf("the resource has %d bytes, and at most %d are allowed", len(name), MaxResource)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return errors.New("the resource is not UTF-8 without NUL")
	default:
		return nil
	}
}
