package auth_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// A watch ends when the rules change what its caller may see, and its cursor is no longer valid: the next watch begins
// with all that the caller may see now. A watch of another caller continues.
func TestWatchWhileRulesChange(t *testing.T) {
	t.Parallel()
	rules := func(prefix string) string {
		return `rules:
  - {identity: "credential:writer", may: [read, hold], resource_prefix: ""}
  - {identity: "credential:reader", may: [read], resource_prefix: "` + prefix + `"}
`
	}
	w := start(t, rules("a/"), []string{"writer", "reader"})
	file := w.Args[len(w.Args)-1]
	create := func(name string) {
		t.Helper()
		_, err := w.CreateClaim(w.as("writer"), &models.CreateClaimRequest{Resource: name, Ttl: proto.Float64(600)})
		must(t, err)
	}
	// watch returns a watch, the resources of its snapshot, and its first cursor.
	watch := func(user, after string) (stream models.Locket_WatchClient, names []string, cursor string, err error) {
		t.Helper()
		stream, err = w.Watch(w.as(user), &models.WatchRequest{Cursor: after})
		must(t, err)
		for cursor == "" {
			response, err := stream.Recv()
			if err != nil {
				return stream, names, cursor, err
			}
			for _, c := range response.GetSnapshot() {
				names = append(names, c.GetResource())
			}
			for _, c := range response.GetTransitions() { // a server of a cluster may hear of claims while it reads the others
				names = append(names, c.GetClaim().GetResource())
			}
			cursor = response.GetCursor()
		}
		return stream, names, cursor, nil
	}
	tooOld := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.OutOfRange || models.ReasonOf(err) != models.ReasonCursorTooOld {
			t.Errorf("%s: %v", what, err)
		}
	}
	create("a/1")
	create("b/1")
	reader, names, before, err := watch("reader", "")
	if err != nil || !slices.Equal(names, []string{"a/1"}) {
		t.Fatalf("%q, %v", names, err)
	}
	if _, _, _, err := watch("reader", before); err != nil {
		t.Errorf("its cursor: %v", err)
	}
	writer, _, _, err := watch("writer", "")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := reader.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()

	must(t, os.WriteFile(file, []byte(rules("b/")), 0o600))
	made := 1
	var end error
	harness.Until(t, "the end of the watch", func() bool {
		made++
		create(fmt.Sprint("b/", made)) // the watch looks when there is news
		select {
		case end = <-ended:
			return true
		default:
			return false
		}
	})
	tooOld("the watch", end)
	_, _, _, err = watch("reader", before)
	tooOld("its cursor", err)
	_, names, after, err := watch("reader", "")
	if err != nil || len(names) != made || slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, "b/") }) {
		t.Errorf("anew it sees %q of %d, %v", names, made, err)
	}
	if _, _, _, err := watch("reader", after); err != nil {
		t.Errorf("its cursor: %v", err)
	}
	_, _, _, err = watch("writer", after)
	tooOld("the cursor of somebody else", err)
	for seen := 0; seen < made-1; {
		response, err := writer.Recv()
		must(t, err)
		seen += len(response.GetTransitions())
	}
}
