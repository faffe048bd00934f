package auth_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// FetchAll without a page returns the complete answer or an error, however many locks are hidden from the caller.
func TestFetchAllBehindOthers(t *testing.T) {
	w := start(t, `
rules:
  - {identity: "credential:loud", may: [read, hold], resource_prefix: "loud/"}
  - {identity: "credential:quiet", may: [read, hold], resource_prefix: "quiet/"}
`, []string{"loud", "quiet"})
	present := func(user, key, value string) {
		_, err := w.Lock(w.as(user), &models.LockRequest{
			Resource: &models.Resource{Key: user + "/" + key, Owner: user, Value: value, TypeCode: models.TypeCode_PRESENCE}, TtlInSeconds: 600,
		})
		if err != nil {
			t.Error(err)
		}
	}
	present("quiet", "first", "here")
	var presences sync.WaitGroup
	for i := range 280 {
		presences.Go(func() { present("loud", fmt.Sprint(i), strings.Repeat("x", 60<<10)) })
	}
	presences.Wait()
	present("quiet", "last", "here")
	all := &models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE}
	seen, err := w.FetchAll(w.as("quiet"), all)
	if err != nil || len(seen.GetResources()) != 2 {
		t.Errorf("quiet sees %d presences, %v", len(seen.GetResources()), err)
	}
	if code, _, body := w.http("quiet", "GET", "/v1/presences", ""); code != 200 || strings.Count(body, `"quiet/`) != 2 {
		t.Errorf("over HTTP: %d %s", code, body)
	}
	if _, err := w.FetchAll(w.as("loud"), all); status.Code(err) != codes.ResourceExhausted || models.ReasonOf(err) != models.ReasonAnswerTooLarge {
		t.Errorf("loud: %v", err)
	}
}

// FetchAll without a page has each lock once, for callers with each kind of rights.
func TestFetchAllOnce(t *testing.T) {
	harness.OnEachEngine(t, func(t *testing.T, database string) {
		w := startOn(t, database, `
rules:
  - {identity: "credential:boss", may: [all], resource_prefix: ""}
  - {identity: "credential:reader", may: [read], resource_prefix: ""}
  - {identity: "credential:part", may: [read], resource_prefix: "k"}
`, []string{"boss", "reader", "part"})
		keys := []string{"k1", "k2", "k3"}
		for _, key := range keys {
			_, err := w.Lock(w.as("boss"), &models.LockRequest{Resource: &models.Resource{Key: key, Owner: "o", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 600})
			must(t, err)
		}
		for _, user := range []string{"boss", "reader", "part"} {
			ctx, cancel := context.WithTimeout(w.as(user), harness.HangTimeout)
			all, err := w.FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
			cancel()
			var seen []string
			for _, r := range all.GetResources() {
				seen = append(seen, r.GetKey())
			}
			if slices.Sort(seen); err != nil || !slices.Equal(seen, keys) {
				t.Errorf("%s sees %q, %v", user, seen, err)
			}
		}
	})
}

// Lists are complete even for a caller that may read all claims and does not get others' user data, which may be large.
func TestListsWithoutUserData(t *testing.T) {
	w := start(t, "", []string{"owner", "reader"})
	const claims = 280 // of 60 KiB: more than FetchAll reads
	large := `"` + strings.Repeat("x", 60<<10) + `"`
	var creates sync.WaitGroup
	for i := range claims {
		creates.Go(func() {
			if _, err := w.CreateClaim(w.as("owner"), &models.CreateClaimRequest{Resource: fmt.Sprint(i), Ttl: proto.Float64(600), UserData: &large}); err != nil {
				t.Error(err)
			}
		})
	}
	creates.Wait()
	for what, page := range map[string]func(token string) (n int, next string, err error){
		"ListClaims": func(token string) (int, string, error) {
			list, err := w.ListClaims(w.as("reader"), &models.ListClaimsRequest{Limit: proto.Uint32(200), PageToken: token})
			return len(list.GetClaims()), list.GetNextPageToken(), err
		},
		"FetchAll by pages": func(token string) (int, string, error) {
			list, err := w.FetchAll(w.as("reader"), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: proto.Uint32(200), PageToken: token})
			return len(list.GetResources()), list.GetNextPageToken(), err
		},
		"FetchAll": func(string) (int, string, error) {
			all, err := w.FetchAll(w.as("reader"), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
			return len(all.GetResources()), "", err
		},
	} {
		seen := 0
		for token := ""; ; {
			n, next, err := page(token)
			must(t, err)
			if seen, token = seen+n, next; next == "" {
				break
			}
		}
		if seen != claims {
			t.Errorf("%s: %d claims, want %d", what, seen, claims)
		}
	}
}
