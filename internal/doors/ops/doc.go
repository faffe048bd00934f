// Package ops is the HTTP server for operators: whether the server is alive and ready, its metrics, its
// profiles. It is plain HTTP, reads only, and passes no guard, so it belongs on an address that
// only operators reach.
//
//	GET /healthz        200 while the process serves
//	GET /readyz         200 when requests can be answered, otherwise 503; the body says why
//	GET /metrics        for Prometheus
//	GET /debug/pprof/   profiles, for `go tool pprof`
//
// Pages has the first three, for an HTTP server that also serves other pages.
package ops
