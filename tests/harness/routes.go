package harness

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Route is a request of the REST API, and the RPC that serves it.
type Route struct{ Method, Path, RPC string }

// Routes reads the routes in models/locket.rest.yaml, which a file names. Streams are not among them.
func Routes(t *testing.T, file string) (routes []Route) {
	t.Helper()
	type rule struct {
		Selector                      string
		Get, Put, Post, Delete, Patch string
		More                          []rule `yaml:"additional_bindings"`
	}
	var config struct{ HTTP struct{ Rules []rule } }
	text, err := os.ReadFile(file)
	Must(t, err)
	Must(t, yaml.Unmarshal(text, &config))
	for _, r := range config.HTTP.Rules {
		at := strings.LastIndex(r.Selector, ".")
		rpc := "/" + r.Selector[:at] + "/" + r.Selector[at+1:]
		for _, b := range append(r.More, r) {
			for method, path := range map[string]string{"GET": b.Get, "PUT": b.Put, "POST": b.Post, "DELETE": b.Delete, "PATCH": b.Patch} {
				if path != "" {
					routes = append(routes, Route{method, path, rpc})
				}
			}
		}
	}
	if len(routes) < 11 {
		t.Fatalf("%s has %d routes: %v", file, len(routes), routes)
	}
	return routes
}
