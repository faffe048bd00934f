package handlers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/handlers"
	"github.com/locket-service/locket/models"
)

// TestGrantsAreLogged: a log of LevelGrant has one line for each grant and each release of a lock, with the request's
// id, and for a renewal if its caller gave a request id.
func TestGrantsAreLogged(t *testing.T) {
	s := startWithLog(t, t.TempDir(), asIs, handlers.LevelGrant)
	request := func(id string) context.Context { return metadata.AppendToOutgoingContext(t.Context(), "uuid", id) }
	lock := &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o", TypeCode: models.TypeCode_PRESENCE}, TtlInSeconds: 60}
	first, err := s.Lock(request("one"), lock)
	must(t, err)
	for _, ctx := range []context.Context{t.Context(), request("two")} {
		_, err = s.Lock(ctx, lock)
		must(t, err)
	}
	_, err = s.Release(request("three"), &models.ReleaseRequest{Resource: lock.GetResource()})
	must(t, err)
	var got []string
	for line := range strings.Lines(s.logs.String()) {
		if strings.Contains(line, "level="+fmt.Sprint(handlers.LevelGrant)+" ") {
			_, line, _ = strings.Cut(line, " msg=")
			got = append(got, strings.TrimSpace(line))
		}
	}
	about := fmt.Sprintf("key=k owner=o type=presence type_code=2 token=%d request_id=", first.GetToken())
	want := []string{`"acquired lock" ` + about + "one", `"renewed lock" ` + about + "two", `"released lock" ` + about + "three"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged %q, want %q", got, want)
	}
}
