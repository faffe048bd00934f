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

// mux serves the operations and the pages, by method and path.
type mux struct {
	config  Config
	service client
	pages   map[string]http.Handler
}

// newMux returns everything that is served.
func newMux(config Config) (http.Handler, error) {
	served, err := pages(config)
	if err != nil {
		return nil, err
	}
	service := client{models.NewLocketClient(fromPeer{config.Service})}
	served[eventsPath] = events(config, service)
	if metrics := served[metricsPath]; metrics != nil && config.Guard != nil {
		served[metricsPath] = guarded(config, metrics)
	}
	return &mux{config, service, served}, nil
}

// ServeHTTP decodes a request once: body, query and path make the message of its call.
func (m *mux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	o, name, code := m.find(r.Method, r.URL.Path)
	if code != http.StatusOK {
		failRouting(w, r, code)
		return
	}
	known.operation, known.wait = o, preferredWait(r.Header)
	refused := o.refuseAccept(r)
	if refused == nil {
		known.message, refused = o.decode(r, name)
	}
	if refused != nil {
		refused.write(w, r)
		return
	}
	if page := m.pages[r.URL.Path]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	m.call(w, r)
}

// find returns the operation of a method at a path, and the name that the path ends with. A page is no operation. The
// code is 404 if there is nothing at the path, and 405 if it has other methods.
func (m *mux) find(method, path string) (o operation, name string, code int) {
	code = http.StatusNotFound
	for _, o := range operations {
		name, here := o.at(path)
		switch {
		case here && o.method == method:
			return o, name, http.StatusOK
		case here:
			code = http.StatusMethodNotAllowed
		}
	}
	switch {
	case m.pages[path] == nil:
		return operation{}, "", code
	case method == http.MethodGet:
		return operation{}, "", http.StatusOK
	default:
		return operation{}, "", http.StatusMethodNotAllowed
	}
}

// call carries out an operation, and answers.
func (m *mux) call(w http.ResponseWriter, r *http.Request) {
	known := requestOf(r.Context())
	ctx := metadata.NewOutgoingContext(r.Context(), callMetadata(m.config, r))
	answer, err := known.operation.rpc.invoke(ctx, m.service, known.message)
	known.tellApplied(w.Header())
	var text []byte
	if err == nil {
		text, err = encode(view(known.base, answer))
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

// callMetadata is that of the calls of a request. Of the address in X-Forwarded-For the audit log decides.
func callMetadata(config Config, r *http.Request) metadata.MD {
	md := metadata.Pairs(models.RequestIDKey, requestOf(r.Context()).id)
	for _, name := range append([]string{"authorization", "x-forwarded-for"}, config.Headers...) {
		if len(md.Get(name)) == 0 {
			md.Append(name, r.Header.Values(name)...)
		}
	}
	return md
}

// pages returns what is served and is no RPC.
func pages(config Config) (map[string]http.Handler, error) {
	document, page, err := newDocs()
	served := map[string]http.Handler{
		"/":             http.HandlerFunc(toDocs),
		"/openapi.json": document,
		"/docs":         page,
		metricsPath:     promhttp.HandlerFor(config.Metrics, promhttp.HandlerOpts{}),
		"/healthz":      http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
	}
	maps.Copy(served, config.Pages)
	maps.DeleteFunc(served, func(_ string, handler http.Handler) bool { return handler == nil })
	return served, err
}

// encode writes JSON as it is meant to be read: without escapes for HTML, and with an
// end of line.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}
