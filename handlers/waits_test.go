package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/models"
)

// claims makes a claim of an owner, whose id is both names.
func (s *server) claims(t *testing.T, owner, resource string, allow bool) (*models.Claim, error) {
	t.Helper()
	return s.CreateClaim(t.Context(), &models.CreateClaimRequest{
		Id: owner + resource, Owner: owner, Resource: resource, Ttl: ptr(60.0), AllowDeadlock: allow,
	})
}

func (s *server) mustClaim(t *testing.T, owner, resource string) {
	t.Helper()
	if _, err := s.claims(t, owner, resource, false); err != nil {
		t.Fatal(err)
	}
}

func (s *server) wantStatus(t *testing.T, id string, want models.Status) {
	t.Helper()
	if c, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: id}); err != nil || c.GetStatus() != want {
		t.Errorf("%s is %v (%v), want %s", id, c.GetStatus(), err, want)
	}
}

// TestDeadlock: the youngest claim of a deadlock is aborted. A caller that waits for it, or makes it again, gets an
// error with the members. The others still wait.
func TestDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for _, owner := range []string{"a", "b", "c"} {
			s.mustClaim(t, owner, "of-"+owner)
		}
		for owner, other := range map[string]string{"a": "of-b", "b": "of-c"} {
			s.mustClaim(t, owner, other)
		}
		time.Sleep(time.Millisecond)
		s.mustClaim(t, "c", "of-a")
		began := time.Now()
		_, awaited := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "cof-a"})
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		_, repeated := s.claims(t, "c", "of-a", false)
		_, late := s.AwaitClaim(t.Context(), &models.AwaitClaimRequest{Id: "cof-a", Timeout: durationpb.New(time.Second)})
		for what, err := range map[string]error{"awaited": awaited, "repeated": repeated, "awaited when it is over": late} {
			var members []map[string]string
			if status.Code(err) != codes.Aborted || models.ReasonOf(err) != models.ReasonDeadlock {
				t.Fatalf("%s: %v", what, err)
			}
			if err := json.Unmarshal([]byte(models.ErrorInfoOf(err).GetMetadata()[models.DeadlockKey]), &members); err != nil {
				t.Fatal(err)
			}
			const want = `[map[claim:cof-a owner:c resource:of-a] map[claim:aof-b owner:a resource:of-b] map[claim:bof-c owner:b resource:of-c]]`
			if got := fmt.Sprint(members); got != want {
				t.Errorf("%s: the members are %s, want %s", what, got, want)
			}
			if text := status.Convert(err).Message(); !strings.HasSuffix(text, `: "c" waited for "of-a", "a" waited for "of-b", "b" waited for "of-c"`) {
				t.Errorf("%s: %s", what, text)
			}
		}
		if c, err := s.GetClaim(t.Context(), &models.GetClaimRequest{Id: "cof-a"}); err != nil || c.GetStatus() != aborted || c.GetReason() != models.DeadlockReason+"cof-a, aof-b, bof-c" {
			t.Errorf("%v, %v", c, err)
		}
		if claim.ReasonDeadlock != models.DeadlockReason {
			t.Error("clients know another reason")
		}
		s.wantStatus(t, "aof-b", models.Status_STATUS_WAITING)
		s.wantStatus(t, "bof-c", models.Status_STATUS_WAITING)
	})
}

// TestAllowedDeadlock: if all claims allow deadlocks, none is aborted, and the deadlock is shown, in the status too.
func TestAllowedDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for _, c := range [][2]string{{"a", "of-a"}, {"b", "of-b"}, {"a", "of-b"}, {"b", "of-a"}} {
			if _, err := s.claims(t, c[0], c[1], true); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second) // the claims last for 60
		queue, err := s.GetQueue(t.Context(), &models.GetQueueRequest{Resource: "of-a"})
		if waits := queue.GetWaits(); err != nil || len(waits) != 2 || waits[1].GetWaiter().GetResource() != "of-a" {
			t.Errorf("%v, %v", queue, err)
		}
		for _, id := range []string{"aof-a", "bof-b"} {
			if _, err := s.UpdateClaim(t.Context(), &models.UpdateClaimRequest{Id: id, Ttl: ptr(600.0)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if state, err := s.GetStatus(t.Context(), &models.GetStatusRequest{}); err != nil || !strings.Contains(strings.Join(state.GetProblems(), ";"), "1 deadlock lasts") {
			t.Errorf("the status is %v, %v", state, err)
		}
	})
}

// TestOwnersThatAreNoDeadlock: an owner that waits for itself, and a chain of owners, are not refused.
func TestOwnersThatAreNoDeadlock(t *testing.T) {
	s := start(t)
	for _, c := range [][2]string{{"a", "1"}, {"b", "1"}, {"c", "1"}, {"a", "2"}, {"c", "2"}} {
		s.mustClaim(t, c[0], c[1])
	}
	for i, owner := range []string{"a", ""} {
		for _, resource := range []string{"1", "2"} {
			_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{Id: fmt.Sprint("self", i, resource), Owner: owner, Resource: resource, Ttl: ptr(60.0)})
			if err != nil {
				t.Errorf("%q for %s: %v", owner, resource, err)
			}
		}
	}
}

// TestQueueShowsWaits: a queue shows what its holder waits for elsewhere, and what the owners of that wait for.
func TestQueueShowsWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		for _, c := range [][2]string{{"a", "1"}, {"b", "2"}, {"d", "3"}, {"c", "2"}, {"a", "2"}, {"b", "3"}, {"e", "1"}} {
			s.mustClaim(t, c[0], c[1])
		}
		for resource, want := range map[string]string{"1": "a2: b2 c2;b3: d3;", "2": "b3: d3;", "3": ""} {
			queue, err := s.GetQueue(t.Context(), &models.GetQueueRequest{Resource: resource})
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, w := range queue.GetWaits() {
				text += w.GetWaiter().GetId() + ":"
				for _, c := range append(w.GetHolders(), w.GetAhead()...) {
					text += " " + c.GetId()
				}
				text += ";"
			}
			if text != want {
				t.Errorf("%s: %q, want %q", resource, text, want)
			}
		}
	})
}
