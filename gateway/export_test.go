package gateway

import (
	"maps"
	"net/http"
	"slices"
)

// Operation is what the tests want to know of an operation.
type Operation struct {
	Method, Path string
	Stream       bool
}

// Operations lists what can be asked for.
func Operations() (list []Operation) {
	for _, o := range operations {
		list = append(list, Operation{o.method, o.path, o.stream()})
	}
	return list
}

// Handler returns all that the server serves.
func (s *Server) Handler() (http.Handler, error) { return s.handler() }

// Pages lists the paths that are served and are no operations.
func (s *Server) Pages() ([]string, error) {
	served, err := pages(s.config)
	return slices.Sorted(maps.Keys(served)), err
}
