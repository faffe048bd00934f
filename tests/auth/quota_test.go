package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

const quotas = `
quotas:
  - {identity: "credential:busy", requests_per_second: 1, burst: 10}
  - {identity_prefix: "credential:s", user_data_bytes: 10, longest_ttl: 1m, waiting_calls: 2, watches: 1, sessions: 1}
  - {everybody: true, requests_per_second: 100000}
`

// overQuota checks that an error names a quota.
func overQuota(t *testing.T, err error, quota string) *status.Status {
	t.Helper()
	s := status.Convert(err)
	var failure *errdetails.QuotaFailure
	for _, detail := range s.Details() {
		if f, ok := detail.(*errdetails.QuotaFailure); ok {
			failure = f
		}
	}
	if s.Code() != codes.ResourceExhausted || models.ReasonOf(err) != models.ReasonQuotaExceeded || models.ErrorInfoOf(err).GetMetadata()["quota"] != quota || len(failure.GetViolations()) != 1 {
		t.Errorf("%v, want the quota %s", err, quota)
	}
	return s
}

func TestRequestQuota(t *testing.T) {
	w := start(t, quotas, []string{"busy", "other"})
	ask := func(user string) error {
		_, err := w.WhoAmI(w.as(user), &models.WhoAmIRequest{})
		return err
	}
	var refused error
	harness.Until(t, "refusal", func() bool { refused = ask("busy"); return refused != nil })
	retry := time.Duration(0)
	for _, detail := range overQuota(t, refused, "requests_per_second").Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			retry = info.GetRetryDelay().AsDuration()
		}
	}
	if retry <= 0 || retry > time.Second {
		t.Errorf("retry after %s", retry)
	}
	for range 50 {
		must(t, ask("other")) // it has its own quota
	}
	var code int
	var header http.Header
	harness.Until(t, "refusal over HTTP", func() bool {
		code, header, _ = w.http("busy", "GET", "/v1/whoami", "")
		return code == http.StatusTooManyRequests
	})
	if header.Get("Retry-After") != "1" || header.Get("Ratelimit") != `"requests_per_second";r=0;t=1` || header.Get("Ratelimit-Policy") != `"requests_per_second";q=1;w=1` {
		t.Errorf("%d %v", code, header)
	}
	harness.Eventually(t, func() error { return ask("busy") })
}

// A caller's quota bounds its held and its waiting claims: over gRPC, REST and sessions together. At the limit it may
// renew, repeat and end its claims.
func TestClaimQuotas(t *testing.T) {
	const quotas = `
quotas:
  - {identity_prefix: "credential:c", claims_held: 3, claims_waiting: 2}
`
	w := start(t, quotas, []string{"ci", "cd", "other"})
	create := func(user, id, resource string) error {
		_, err := w.CreateClaim(w.as(user), &models.CreateClaimRequest{Id: id, Resource: resource, Owner: "o", Ttl: proto.Float64(60)})
		return err
	}
	lock := func(user, resource string) error {
		_, err := w.Lock(w.as(user), &models.LockRequest{Resource: &models.Resource{Key: resource, Owner: "o"}, TtlInSeconds: 60})
		return err
	}
	must(t, create("other", "x", "busy"))
	must(t, create("ci", "held1", "r1"))
	must(t, lock("ci", "r2"))

	stream, err := w.Session(w.as("ci"))
	must(t, err)
	sequence := uint64(0)
	command := func(request *models.SessionRequest) *models.SessionResponse {
		t.Helper()
		sequence++
		request.Sequence = sequence
		must(t, stream.Send(request))
		for {
			response, err := stream.Recv()
			must(t, err)
			if response.GetSequence() == sequence {
				return response
			}
		}
	}
	inSession := func(resource string) *models.SessionResponse {
		t.Helper()
		return command(&models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: resource}}})
	}
	command(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: "session-of-the-quota", Secret: "0123456789abcdef", Ttl: 600}}})
	if got := inSession("r3").GetStatus().GetCurrent(); got != models.Holding_HOLDING_HELD {
		t.Fatal(got)
	}

	retry := time.Duration(0)
	for _, detail := range overQuota(t, create("ci", "held4", "r4"), "claims_held").Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			retry = info.GetRetryDelay().AsDuration()
		}
	}
	if retry != time.Second {
		t.Errorf("retry after %s", retry)
	}
	overQuota(t, lock("ci", "r4"), "claims_held")
	if e := inSession("r4").GetError(); e.GetReason() != models.ReasonQuotaExceeded || e.GetMetadata()["quota"] != "claims_held" || e.GetCode() != int32(codes.ResourceExhausted) {
		t.Errorf("in a session: %s", e)
	}
	code, header, body := w.http("ci", "POST", "/v1/claims/", `{"resource": "r4", "ttl": 60}`)
	if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" || header.Get("Ratelimit") != `"claims_held";r=0;t=1` || header.Get("Ratelimit-Policy") != `"claims_held";q=3` {
		t.Errorf("%d %v %s", code, header, body)
	}
	must(t, create("ci", "held1", "r1")) // a retry
	must(t, lock("ci", "r2"))            // a renewal
	_, err = w.UpdateClaim(w.as("ci"), &models.UpdateClaimRequest{Id: "held1", Ttl: proto.Float64(60)})
	must(t, err)

	must(t, create("ci", "waits1", "busy")) // that is another quota
	if got := inSession("r1").GetStatus().GetCurrent(); got != models.Holding_HOLDING_WAITING {
		t.Fatal(got)
	}
	overQuota(t, create("ci", "waits3", "busy"), "claims_waiting")
	must(t, create("ci", "waits1", "busy"))

	must(t, create("cd", "d", "r4")) // each has the whole quota
	for i := range 10 {
		must(t, create("other", fmt.Sprint("o", i), fmt.Sprint("other", i)))
	}
	_, err = w.EndClaim(w.as("other"), &models.EndClaimRequest{Id: "x"}) // waits1 is still granted
	must(t, err)
	found, err := w.GetClaim(w.as("ci"), &models.GetClaimRequest{Id: "waits1"})
	if err != nil || found.GetStatus() != models.Status_STATUS_ACTIVE {
		t.Fatalf("%s, %v", found, err)
	}
	overQuota(t, create("ci", "waits3", "r4"), "claims_held") // so that grants do not add up
	for _, id := range []string{"held1", "waits1"} {
		_, err := w.EndClaim(w.as("ci"), &models.EndClaimRequest{Id: id})
		must(t, err)
	} // the session has r1 now
	overQuota(t, create("ci", "held5", "r5"), "claims_held")
	must(t, create("ci", "waits3", "r4"))
	command(&models.SessionRequest{Command: &models.SessionRequest_UnlockAll{UnlockAll: &models.UnlockAllCommand{}}})
	must(t, create("ci", "held5", "r5"))
}

func TestQuotas(t *testing.T) {
	harness.OnBothLogs(t, testQuotas)
}

func testQuotas(t *testing.T, database string) {
	t.Helper()
	w := startOn(t, database, quotas, []string{"small", "other"})
	create := func(user string, change func(*models.CreateClaimRequest)) error {
		request := &models.CreateClaimRequest{Resource: "r" + user, Ttl: proto.Float64(60), UserData: proto.String(`"12345678"`)}
		change(request)
		_, err := w.CreateClaim(w.as(user), request)
		return err
	}
	long := func(c *models.CreateClaimRequest) { c.Ttl = proto.Float64(61) }
	large := func(c *models.CreateClaimRequest) { c.UserData = proto.String(`"123456789"`) }
	must(t, create("small", func(c *models.CreateClaimRequest) { c.Id = "mine" }))
	overQuota(t, create("small", long), "longest_ttl")
	overQuota(t, create("small", large), "user_data_bytes")
	must(t, create("other", long))
	must(t, create("other", large))
	_, err := w.UpdateClaim(w.as("small"), &models.UpdateClaimRequest{Id: "mine", Ttl: proto.Float64(3600)})
	overQuota(t, err, "longest_ttl")
	code, header, body := w.http("small", "POST", "/v1/claims/", `{"resource": "small", "ttl": 61}`) // at no later time either
	if code != http.StatusTooManyRequests || header.Get("Retry-After") != "" || header.Get("Ratelimit") != `"longest_ttl";r=0` {
		t.Errorf("%d %v %s", code, header, body)
	}
	_, err = w.Lock(w.as("small"), &models.LockRequest{Resource: &models.Resource{Key: "k", Owner: "o", Value: strings.Repeat("x", 11)}, TtlInSeconds: 5})
	overQuota(t, err, "user_data_bytes")

	must(t, create("small", func(c *models.CreateClaimRequest) { c.Id = "waits" }))
	ctx, cancel := context.WithCancel(w.as("small"))
	defer cancel()
	refused := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := w.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "waits"})
			refused <- err
		}()
	}
	overQuota(t, <-refused, "waiting_calls")
	cancel()
	<-refused
	<-refused

	open := func(user string) (models.Locket_WatchClient, context.CancelFunc, error) {
		ctx, cancel := context.WithCancel(w.as(user))
		watch, err := w.Watch(ctx, &models.WatchRequest{NoSnapshot: true})
		must(t, err)
		_, err = watch.Recv()
		return watch, cancel, err
	}
	first, end, err := open("small")
	must(t, err)
	_, endSecond, err := open("small")
	defer endSecond()
	overQuota(t, err, "watches")
	end()
	_, _ = first.Recv()
	harness.Eventually(t, func() error { // its end makes room
		_, end, err := open("small")
		end()
		return err
	})

	stream, err := w.Session(w.as("small"))
	must(t, err)
	must(t, stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: "session-of-the-quota", Secret: "0123456789abcdef", Ttl: 60}}}))
	_, err = stream.Recv()
	must(t, err)
	must(t, stream.Send(&models.SessionRequest{Sequence: 2, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: "s", Value: strings.Repeat("x", 11)}}}))
	answer, err := stream.Recv()
	must(t, err)
	if e := answer.GetError(); e.GetReason() != models.ReasonQuotaExceeded || answer.GetSequence() != 2 {
		t.Errorf("a command beyond the quota: %s", answer)
	}
	must(t, stream.Send(&models.SessionRequest{Sequence: 3, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: "s"}}}))
	if answer, err := stream.Recv(); err != nil || answer.GetStatus().GetCurrent() != models.Holding_HOLDING_HELD {
		t.Errorf("the stream goes on: %s, %v", answer, err)
	}
	second, err := w.Session(w.as("small"))
	must(t, err)
	_, err = second.Recv()
	overQuota(t, err, "sessions")
}
