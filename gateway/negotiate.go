package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
)

// accepts reports whether a client accepts a media type, by its header Accept (RFC 9110, section 12.5.1). Without this
// header it accepts all.
func accepts(r *http.Request, mediaType string) bool {
	accepted := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	if strings.TrimSpace(accepted) == "" {
		return true
	}
	kind, _, _ := strings.Cut(mediaType, "/")
	clauses := goautoneg.ParseAccept(accepted)
	for _, match := range []string{mediaType, kind + "/*", "*/*"} { // the most specific clause wins
		for _, clause := range clauses {
			if clause.Type+"/"+clause.SubType == match {
				return clause.Q > 0
			}
		}
	}
	return false
}

// wantsProblem reports whether a client accepts problems (RFC 9457) by their name.
func wantsProblem(r *http.Request) bool {
	named := strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), problemType)
	return named && accepts(r, problemType)
}

// refuseAccept refuses a request whose client accepts no answer of the operation. A client that accepts only problems
// gets other answers as JSON.
func (o operation) refuseAccept(r *http.Request) *refusal {
	types := []string{"application/json", problemType}
	switch {
	case o.method == "": // a page
		return nil
	case o.stream():
		types = []string{"text/event-stream"}
	}
	if slices.ContainsFunc(types, func(mediaType string) bool { return accepts(r, mediaType) }) {
		return nil
	}
	return &refusal{code: http.StatusNotAcceptable, body: problems{"message": "answers here are " + strings.Join(types, " or ") + ", which the header Accept excludes"}}
}
