package ops

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout is how long /readyz waits for its answer: shorter than the timeout of most probes.
const readyTimeout = 800 * time.Millisecond

// Ready returns nil if the server can answer requests now, otherwise the reason, for operators.
type Ready func(ctx context.Context) error

// Warnings returns problems that an operator must solve although the server answers requests.
type Warnings func() []string

// Pages returns the handlers of GET for /healthz, /readyz and /metrics.
func Pages(metrics prometheus.Gatherer, ready Ready, warnings Warnings) map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
		"/readyz":  readiness(ready, warnings),
		"/metrics": promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}),
	}
}

func readiness(ready Ready, warnings Warnings) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := ready(ctx); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "not ready:", err)
			return
		}
		fmt.Fprintln(w, "ready")
		if warnings == nil {
			return
		}
		for _, warning := range warnings() {
			fmt.Fprintln(w, "warning:", warning)
		}
	})
}

// onLoopback refuses requests whose Host is not localhost. On a loopback address these come from a web page in a browser
// of this machine that uses DNS rebinding.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "unknown host "+strconv.Quote(r.Host), http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// handler returns the handler of all pages of this server. It leaves out the command line (/debug/pprof/cmdline), which
// may have the password of the database.
func handler(metrics prometheus.Gatherer, ready Ready, warnings Warnings) http.Handler {
	mux := http.NewServeMux()
	for path, page := range Pages(metrics, ready, warnings) {
		mux.Handle("GET "+path, page)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
