package program_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// REST answers and the output of -o json are the same, except for the member url, and for the
// token and the TTL, which lists of the command line have in addition.
func TestOneJSON(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	env := []string{"LOCKET_ADDRESS=" + server.Address(), "LOCKET_CONTEXT_FILE=" + os.DevNull}
	client := server.Client(t)
	harness.Lock(t, client, "lock", "me", time.Hour)
	harness.Create(t, client, "ended", "ended", time.Hour)
	harness.Release(t, client, "ended")

	for path, args := range map[string][]string{
		"/v1/claims/ended/":    {"get", "ended"}, // its durations no longer change
		"/v1/locks/lock/":      {"fetch", "lock"},
		"/v1/locks/":           {"locks"},
		"/v1/presences/":       {"presences"},
		"/v1/resources/ended/": {"resource", "ended"},
	} {
		printed, stderr, code := harness.RunLocket(t, env, append(args, "-o", "json")...)
		if code != 0 {
			t.Errorf("locket %q: status %d, %s", args, code, stderr)
			continue
		}
		resp, err := http.Get("http://" + server.HTTPAddress() + path)
		harness.Must(t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		harness.Must(t, err)
		var answered, shown any
		harness.Must(t, json.Unmarshal(body, &answered))
		harness.Must(t, json.Unmarshal([]byte(printed), &shown))
		if args[0] == "locks" {
			added := dropMembers(t, shown, "token", "ttl")
			if token, _ := added["token"].(float64); token == 0 || added["ttl"] == nil {
				t.Errorf("locket %q: %v", args, added)
			}
		}
		if dropped := dropURLs(answered); !reflect.DeepEqual(answered, shown) || dropped == 0 && path != "/v1/presences/" {
			t.Errorf("%s: %s\nlocket %q: %s", path, body, args, printed)
		}
	}
}

// dropMembers drops members of the only object of a list, and returns them.
func dropMembers(t *testing.T, list any, names ...string) map[string]any {
	t.Helper()
	objects, _ := list.([]any)
	if len(objects) != 1 {
		t.Fatalf("%v, want one object", list)
	}
	object, _ := objects[0].(map[string]any)
	dropped := make(map[string]any)
	for _, name := range names {
		dropped[name] = object[name]
		delete(object, name)
	}
	return dropped
}

// dropURLs drops the members url, and returns how many.
func dropURLs(value any) (n int) {
	switch value := value.(type) {
	case []any:
		for _, inner := range value {
			n += dropURLs(inner)
		}
	case map[string]any:
		for name, inner := range value {
			n += dropURLs(inner)
			if name == "url" {
				delete(value, name)
				n++
			}
		}
	}
	return n
}
