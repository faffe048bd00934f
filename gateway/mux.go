package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/metadata"

	rest "github.com/locket-service/locket/gateway/internal/models"
	"github.com/locket-service/locket/models"
)

// newMux returns everything that is served, by its path.
func newMux(config Config) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &marshaler{}),
		runtime.WithMiddlewares(translate),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithMetadata(func(_ context.Context, r *http.Request) metadata.MD { return callMetadata(config, r) }),
		runtime.WithForwardResponseOption(head),
		runtime.WithForwardResponseRewriter(view),
		runtime.WithErrorHandler(fail),
		runtime.WithRoutingErrorHandler(failRouting),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	service := client{models.NewLocketClient(merging{fromPeer{config.Service}})}
	if err := rest.RegisterLocketHandlerClient(context.Background(), mux, service); err != nil {
		return nil, err
	}
	served, err := pages(config)
	if err != nil {
		return nil, err
	}
	served[eventsPath] = events(config, service)
	if metrics := served[metricsPath]; metrics != nil && config.Guard != nil {
		served[metricsPath] = guarded(config, metrics)
	}
	for path, handler := range served {
		serve := func(w http.ResponseWriter, r *http.Request, _ map[string]string) { handler.ServeHTTP(w, r) }
		if err := mux.HandlePath(http.MethodGet, path, serve); err != nil {
			return nil, err
		}
	}
	return mux, nil
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

// callMetadata is that of the calls of a request. The header Authorization is not there: the mux
// passes it on, all of its values.
func callMetadata(config Config, r *http.Request) metadata.MD {
	md := metadata.Pairs(models.RequestIDKey, requestOf(r.Context()).id)
	for _, name := range config.Headers {
		if name != "authorization" {
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

// marshaler writes JSON as it is meant to be read: without escapes for HTML, and with an
// end of line.
type marshaler struct{ runtime.JSONBuiltin }

// Marshal implements runtime.Marshaler.
func (marshaler) Marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.Bytes(), err
}
