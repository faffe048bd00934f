package gateway

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	// writeTimeout is how long a request may take from its headers to the end of the
	// answer, beside the time for which it is asked to wait.
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
	maxHeader    = 64 << 10
)

// mannered gives every request what all of them have in common, and hands it on.
func mannered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, err := cleanPath(r.URL.EscapedPath())
		known := newRequest(w, r, path)
		w.Header().Set("X-Request-Id", known.id)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		r = r.WithContext(context.WithValue(r.Context(), requestKey{}, known))
		r.Method = known.method
		if err != nil {
			badRequest(problems{"message": "the path: " + err.Error()}).write(w)
			return
		}
		r.URL = &url.URL{Path: path, RawQuery: r.URL.RawQuery}
		next.ServeHTTP(w, r)
	})
}

// cleanPath decodes a path, and leaves out the slashes at its end and those that are
// doubled. Slashes that are encoded belong to a name, and stay.
func cleanPath(escaped string) (string, error) {
	var path strings.Builder
	for segment := range strings.SplitSeq(escaped, "/") {
		if segment == "" {
			continue
		}
		name, err := url.PathUnescape(segment)
		if err != nil {
			return "", err
		}
		path.WriteString("/" + name)
	}
	return "/" + strings.TrimPrefix(path.String(), "/"), nil
}

// lastFor lets a request take so much longer than others.
func (r *request) lastFor(wait time.Duration) {
	_ = r.connection.SetReadDeadline(time.Time{}) // the body has been read; a hang-up is still noticed
	_ = r.connection.SetWriteDeadline(time.Now().Add(wait + writeTimeout))
}
