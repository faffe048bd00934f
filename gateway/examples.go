package gateway

import (
	"encoding/json"
	"reflect"
)

const (
	problemsExample = `{"ttl": "is required", "colour": "unknown parameter"}`
	problemExample  = `{"title": "Bad Request", "status": 400, "detail": "parameters are wrong: colour, ttl", "instance": "urn:request:build-17",
		"errors": {"ttl": "is required", "colour": "unknown parameter"}}`
)

// exampleOf returns the example of a view, or of a list of views.
func exampleOf(t reflect.Type) any {
	if t.Kind() == reflect.Slice {
		return []any{exampleOf(t.Elem())}
	}
	return example(reflect.Zero(t).Interface().(exemplary).example())
}

// example decodes an example, which is JSON.
func example(text string) (value any) {
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic("the example " + text + ": " + err.Error())
	}
	return value
}
