package gateway

import "net/http"

// Operation is what the tests want to know of an operation.
type Operation struct{ Method, Path string }

// Operations lists what can be asked for.
func Operations() (list []Operation) {
	for _, o := range operations {
		list = append(list, Operation{o.method, o.path})
	}
	return list
}

// Handler returns all that the server serves.
func (s *Server) Handler() (http.Handler, error) { return s.handler() }
