package gateway

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// markHeader is in every answer, including errors, so that clients can tell them from a proxy's. Package keychain
// relies on it.
const markHeader = "Locket-Api"

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	// writeTimeout limits the time from the headers of a request to the end of its answer, in addition to the time that
	// it is asked to wait.
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
	maxHeader    = 64 << 10
	// maxStreams is how many requests one connection may have under way over HTTP/2, as over gRPC. Waiting requests
	// count too: a client with so many of them cannot send a renewal until one has ended.
	maxStreams = 10_000
)

// common handles what all requests have in common, and calls next.
func common(config Config, origins *origins, next http.Handler) http.Handler {
	hosts, proxies := newHosts(config.Hosts), proxies(config.TrustedProxies)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, err := cleanPath(r.URL.EscapedPath())
		path, query := nameInQuery(path, r.URL.RawQuery)
		known := newRequest(w, r, proxies.baseOf(r), path)
		w.Header().Set(markHeader, "v1")
		w.Header().Set("X-Request-Id", known.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		origins.allow(w, r)
		for _, refused := range []*refusal{hosts.refuse(r), origins.refuse(r)} {
			if refused != nil {
				refused.write(w, r)
				return
			}
		}
		if origins.answer(w, r) {
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, known))
		r.Method = known.method
		if err != nil {
			badRequest(problems{"message": "the path: " + err.Error()}).write(w, r)
			return
		}
		if refused := refuseCredentials(known.query); refused != nil {
			refused.write(w, r)
			return
		}
		r.URL = &url.URL{Path: path, RawQuery: query}
		if config.Arrive != nil && r.ContentLength != 0 {
			defer config.arrive(r)()
		}
		next.ServeHTTP(w, r)
	})
}

// cleanPath removes trailing and repeated slashes from a path, and decodes its segments after "/v1/claims" and the
// like: names and ids. Encoded slashes belong to a name and are kept.
func cleanPath(escaped string) (string, error) {
	segments := slices.DeleteFunc(strings.Split(escaped, "/"), func(segment string) bool { return segment == "" })
	for i := 2; i < len(segments); i++ {
		name, err := url.PathUnescape(segments[i])
		if err != nil {
			return "", err
		}
		segments[i] = name
	}
	return "/" + strings.Join(segments, "/"), nil
}

// nameInQuery returns /v1/resources/a for /v1/resources?name=a. Browsers and proxies remove the names "." and ".." from
// a path, even if they are encoded, and some proxies decode slashes; they do not change a query.
func nameInQuery(path, query string) (pathWithName, rest string) {
	values, err := url.ParseQuery(query)
	name := values["name"]
	if err != nil || len(name) != 1 || name[0] == "" || !namesOf(path) {
		return path, query
	}
	delete(values, "name")
	return path + "/" + name[0], values.Encode()
}

// namesOf reports whether a name may follow a path.
func namesOf(path string) bool {
	return slices.ContainsFunc(operations, func(o operation) bool {
		list, _, named := strings.Cut(o.path, "/{")
		return named && list == path && o.nameInPath() != "id"
	})
}

// nameURL returns the URL of a name in a list, in a form that no client changes.
func nameURL(list, name string) string {
	if name == "." || name == ".." {
		return list + "?name=" + name
	}
	return list + url.PathEscape(name) + "/"
}

// extendDeadline adds to the time for the answer. The deadline for reading the body is not changed.
func (r *request) extendDeadline(wait time.Duration) {
	r.writeWithin(wait + writeTimeout)
}

func (r *request) writeWithin(timeout time.Duration) {
	_ = r.connection.SetWriteDeadline(time.Now().Add(timeout))
}
