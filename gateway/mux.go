package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/models"
)

// mux serves pages and operations.
type mux struct {
	config  Config
	service client
	pages   map[string]page // by path
}

// page serves a path that no operation has.
type page struct {
	method string
	serve  http.HandlerFunc
}

// newMux returns the handler of all paths.
func newMux(config Config) (http.Handler, error) {
	served, err := pages(config)
	if err != nil {
		return nil, err
	}
	m := mux{config, client{models.NewLocketClient(fromPeer{config.Service})}, make(map[string]page)}
	if metrics := served[metricsPath]; metrics != nil && config.Guard != nil {
		served[metricsPath] = guarded(config, metrics)
	}
	for path, handler := range served {
		m.pages[path] = page{http.MethodGet, handler.ServeHTTP}
	}
	if config.SignIn != nil {
		maps.Copy(m.pages, signInPages(config.SignIn))
	}
	return m, nil
}

// ServeHTTP implements http.Handler.
func (m mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code := http.StatusNotFound
	if p, here := m.pages[r.URL.Path]; here {
		if p.method == r.Method {
			p.serve(w, r)
			return
		}
		code = http.StatusMethodNotAllowed
	}
	for _, o := range operations {
		switch name, here := o.at(r.URL.Path); {
		case !here:
		case o.method == r.Method:
			m.operate(w, r, o, name)
			return
		default:
			code = http.StatusMethodNotAllowed
		}
	}
	failRouting(w, r, code)
}

// operate answers a request for an operation. name is the end of its path, "" for none. It decodes the request once: body, query
// and path form the message of its call.
func (m mux) operate(w http.ResponseWriter, r *http.Request, o operation, name string) {
	known := requestOf(r.Context())
	known.operation, known.wait = o, preferredWait(r.Header)
	refused := o.refuseAccept(r)
	if refused == nil {
		known.message, refused = o.decode(r, name)
	}
	switch {
	case refused != nil:
		refused.write(w, r)
	case o.path == eventsPath:
		m.events(w, r)
	default:
		m.call(w, r)
	}
}

// call runs an operation, and writes its answer.
func (m mux) call(w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	ctx := metadata.NewOutgoingContext(r.Context(), callMetadata(m.config, r))
	answer, err := known.operation.rpc.invoke(ctx, m.service, known.message)
	known.tellApplied(w.Header())
	var text []byte
	if err == nil {
		text, err = encode(known.operation.rpc.view(known.base, answer))
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	code := known.head(w.Header(), answer)
	if code == http.StatusNoContent {
		w.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client may have gone
}

const metricsPath = "/metrics"

// guarded is a page that not everybody may see.
func guarded(config Config, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := config.Guard(config.incoming(r), metricsPath, func() { page.ServeHTTP(w, r) }); err != nil {
			writeError(w, r, err)
		}
	})
}

// callMetadata returns the metadata of the calls of a request. The audit log decides whether to trust the address in
// X-Forwarded-For.
func callMetadata(config Config, r *http.Request) metadata.MD {
	md := metadata.Pairs(models.RequestIDKey, requestOf(r.Context()).id)
	for _, name := range append([]string{"authorization", "x-forwarded-for"}, config.Headers...) {
		if len(md.Get(name)) == 0 {
			md.Append(name, r.Header.Values(name)...)
		}
	}
	if config.SignIn != nil && len(md.Get("authorization")) == 0 {
		if credential := credentialOfCookie(r); credential != "" {
			md.Set("authorization", "Bearer "+credential)
		}
	}
	return md
}

// pages returns the handlers of pages that are not RPCs.
func pages(config Config) (map[string]http.Handler, error) {
	described, err := docs()
	served := map[string]http.Handler{
		"/":         leadTo("/docs"),
		metricsPath: promhttp.HandlerFor(config.Metrics, promhttp.HandlerOpts{}),
		"/healthz":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
	}
	maps.Copy(served, described)
	if config.Pages[consolePath] != nil {
		served["/"] = leadTo(consolePath + "/")
	}
	maps.Copy(served, config.Pages)
	maps.DeleteFunc(served, func(_ string, handler http.Handler) bool { return handler == nil })
	return served, err
}

// encode returns JSON for people: without escapes for HTML, and with a newline at its end.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}
