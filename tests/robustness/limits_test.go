package robustness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/doors/auth"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// These are the documented limits of a request.
const (
	longName  = 1024
	longID    = 128
	longData  = 64 << 10
	longTTL   = 100 * 365.25 * 24 * 60 * 60 // seconds
	longIdent = 512
)

// filler has the bytes whose encodings in SQL, JSON and URLs are the longest.
var filler = strings.Repeat(`'"\`, longData)

// longNameOf returns a name of the greatest length. All of them begin with the same bytes.
func longNameOf(n int) string { return fmt.Sprintf("%s%06d", filler[:longName-6], n) }

func longIDOf(kind string, n int) string { return fmt.Sprintf("%s%0*d", kind, longID-len(kind), n) }

// longText is the text of the longest user data, and longJSON the user data, as the bytes of a JSON value.
var (
	longText = strings.Repeat(`"`, longData/2-1)
	longJSON = `"` + strings.Repeat(`\"`, longData/2-1) + `"`
)

// amounts has the number of each kind that exist at the same time.
type amounts struct {
	claims  int     // over gRPC, and as many over REST
	locks   int     // of a session
	waiters int     // with shared claims
	ttl     float64 // of the session, in seconds
}

// extremes is a server with all callers at their limits.
type extremes struct {
	amounts
	t          *testing.T
	server     *fixtures.Locket
	credential string
	again      atomic.Int64 // calls that were repeated
	models.LocketClient
}

// startExtremes starts a server whose callers have identities of the greatest length, and a quota, so that claims are counted.
func startExtremes(t *testing.T, database string, a amounts) *extremes {
	t.Helper()
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	credential, hash := auth.NewCredential()
	name := strings.Repeat("n", longIdent-len("credential:"))
	credentials := write("credentials.yaml", fmt.Sprintf("credentials:\n  - {name: %s, hash: %q}\n", name, hash))
	rules := write("rules.yaml", "rules:\n  - {everybody: true, may: [all], resource_prefix: \"\"}\nquotas:\n  - {everybody: true, claims_held: 1000000, claims_waiting: 1000000}\n")
	x := &extremes{amounts: a, t: t, credential: credential, server: fixtures.StartLocket(t, database, "--auth-credentials", credentials, "--auth-rules", rules)}
	conn, err := grpc.NewClient("passthrough:///"+x.server.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(x))
	harness.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	x.LocketClient = models.NewLocketClient(conn)
	return x
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (x *extremes) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + x.credential, "uuid": strings.Repeat("u", longID)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (x *extremes) RequireTransportSecurity() bool { return false }

// call returns a context with a deadline, for calls that hang.
func (x *extremes) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.t.Context(), 5*time.Minute)
}

// overloaded are the reasons of documented errors of a server, or a database, that has too much to do. The last one is of a commit that the
// database did not confirm in time, and has not ended yet. The call can be repeated.
var overloaded = []string{models.ReasonOverloaded, models.ReasonDatabaseUnavailable, models.ReasonOutcomeUnknown, models.ReasonResourceLocked, models.ReasonListTooLong}

// answered repeats a call until it is carried out. An overloaded server may refuse it.
func answered[Request, Response any](x *extremes, call func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (response Response) {
	x.t.Helper()
	ctx, cancel := x.call()
	defer cancel()
	for {
		response, err := call(ctx, request)
		if slices.Contains(overloaded, models.ReasonOf(err)) {
			x.again.Add(1)
			time.Sleep(100 * time.Millisecond) // real time: the pause before the next attempt
			continue
		}
		if err != nil {
			x.t.Errorf("%T: %.300s", request, err)
		}
		return response
	}
}

// refused checks that a call got its documented error.
func (x *extremes) refused(what string, err error, code codes.Code, reason string) {
	x.t.Helper()
	if status.Code(err) != code || models.ReasonOf(err) != reason {
		x.t.Errorf("%s: %.300v, want %s", what, err, reason)
	}
}

// at calls do for each number below n, several at the same time.
func at(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(64, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

func (x *extremes) longest(kind string, n int) *models.CreateClaimRequest {
	return &models.CreateClaimRequest{
		Id: longIDOf(kind, n), Resource: longNameOf(n), Owner: filler[:longName-longID] + longIDOf(kind, n), Ttl: proto.Float64(longTTL), WaitTtl: proto.Float64(longTTL),
		UserData: &longJSON, Value: filler[:longData],
	}
}

// claims makes, renews and reads claims over gRPC, two for each resource.
func (x *extremes) claims() {
	at(2*x.amounts.claims, func(i int) {
		request := x.longest("g", i)
		request.Resource = longNameOf(i / 2)
		made := answered(x, x.CreateClaim, request)
		again := answered(x, x.CreateClaim, request)
		if again.GetUserData() != longJSON || again.GetValue() != filler[:longData] || made.GetId() != again.GetId() {
			x.t.Errorf("the claim differs: %d and %d bytes", len(again.GetUserData()), len(again.GetValue()))
		}
		answered(x, x.GetQueue, &models.GetQueueRequest{Resource: request.GetResource(), Limit: proto.Uint32(1000)})
		if again.GetStatus() == active {
			renewed := answered(x, x.UpdateClaim, &models.UpdateClaimRequest{Id: request.GetId(), Ttl: proto.Float64(longTTL)})
			if renewed.GetUserData() != longJSON {
				x.t.Errorf("the renewed claim differs: %d bytes", len(renewed.GetUserData()))
			}
		}
	})
}

// cloudFoundry takes and renews locks as clients of Cloud Foundry's Locket do.
func (x *extremes) cloudFoundry() {
	at(2*x.amounts.claims, func(i int) {
		resource := &models.Resource{Key: longNameOf(100_000 + i), Owner: longNameOf(i), Value: filler[:longData], TypeCode: models.TypeCode_LOCK}
		for range 2 {
			answered(x, x.Lock, &models.LockRequest{Resource: resource, TtlInSeconds: longTTL})
		}
		found := answered(x, x.Fetch, &models.FetchRequest{Key: resource.GetKey()})
		if found.GetResource().GetValue() != resource.GetValue() {
			x.t.Errorf("Fetch returns %d bytes", len(found.GetResource().GetValue()))
		}
	})
}

// rest makes, reads and ends claims over HTTP.
func (x *extremes) rest() {
	at(x.amounts.claims, func(i int) {
		c := x.longest("r", i)
		fields := map[string]any{"id": c.GetId(), "resource": longNameOf(200_000 + i), "owner": c.GetOwner(), "ttl": longTTL, "wait_ttl": longTTL}
		if i%2 == 0 { // one of them for each: with both the test takes too long on a machine that has much to do
			fields["user_data"] = json.RawMessage(longJSON)
		} else {
			fields["value"] = c.GetValue()
		}
		body, err := json.Marshal(fields)
		harness.Must(x.t, err)
		x.http("POST", "/v1/claims/", body, http.StatusCreated)
		var got map[string]any
		harness.Must(x.t, json.Unmarshal(x.http("GET", "/v1/claims/"+c.GetId()+"/", nil, http.StatusOK), &got))
		for name, want := range map[string]string{"user_data": longText, "value": filler[:longData]} {
			if text, _ := got[name].(string); fields[name] != nil && text != want {
				x.t.Errorf("%s has %d bytes, want %d", name, len(text), len(want))
			}
		}
		filters := url.Values{"resource": {longNameOf(200_000 + i)}, "owner": {c.GetOwner()}, "limit": {"1000"}, "offset": {"1048576"}, "maximum_ttl": {fmt.Sprint(longTTL)}}
		x.http("GET", "/v1/claims/?"+filters.Encode(), nil, http.StatusOK)
		ended, err := json.Marshal(map[string]any{"status": "released"})
		harness.Must(x.t, err)
		x.http("PATCH", "/v1/claims/"+c.GetId()+"/", ended, http.StatusNoContent)
	})
}

// http repeats a request until it is carried out, and returns the body of the answer. An overloaded server may refuse it.
func (x *extremes) http(method, path string, body []byte, want int) (text []byte) {
	ctx, cancel := x.call()
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, method, "http://"+x.server.HTTPAddress()+path, bytes.NewReader(body))
		harness.Must(x.t, err)
		request.Header.Set("Authorization", "Bearer "+x.credential)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			x.t.Errorf("%s %.100s: %v", method, path, err)
			return nil
		}
		text, _ = io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch response.StatusCode {
		case want:
			return text
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			x.again.Add(1)
			time.Sleep(100 * time.Millisecond) // real time: the pause before the next attempt
		default:
			x.t.Errorf("%s %.100s: %s %.300s", method, path, response.Status, text)
			return nil
		}
	}
}

// session ends a session that holds many resources, which are then granted to the waiters.
func (x *extremes) session() {
	s := harness.DialSession(x.t, x.LocketClient)
	s.Open(strings.Repeat("s", longID-len(harness.SessionID(""))), func(open *models.OpenSession) { open.Owner, open.Ttl = longNameOf(0), x.ttl })
	s.KeepAlive()
	const together = 64
	for first := 0; first < x.locks; first += together {
		x.lockAll(s, first, min(first+together, x.locks))
	}
	next := x.longest("n", 300_000)
	answered(x, x.CreateClaim, next)
	s.BreakOff()
	granted := answered(x, x.AwaitClaim, &models.AwaitClaimRequest{Id: next.GetId()})
	if granted.GetStatus() != active || granted.GetUserData() != longJSON {
		x.t.Errorf("who waited behind the session is %s, with %d bytes", granted.GetStatus(), len(granted.GetUserData()))
	}
	keep := make([]string, 1000)
	for i := range keep {
		keep[i] = longIDOf("keep", i)
	}
	answered(x, x.ResetSessions, &models.ResetSessionsRequest{Keep: keep})
}

// lockAll locks resources by a session. It repeats commands that an overloaded server has refused.
func (x *extremes) lockAll(s *harness.Session, first, end int) {
	asked := make(map[uint64]int)
	for i := first; i < end; i++ {
		asked[s.Ask(harness.LockCommand(longNameOf(300_000+i), func(l *models.LockCommand) { l.Value, l.UserData = filler[:longData], &longJSON }))] = i
	}
	var refused []int
	for len(asked) > 0 {
		answer := s.Next()
		i, mine := asked[answer.GetSequence()]
		delete(asked, answer.GetSequence())
		switch reason := answer.GetError().GetReason(); {
		case !mine: // an event
		case slices.Contains(overloaded, reason):
			refused = append(refused, i)
		case answer.GetStatus().GetCurrent() != harness.Held:
			x.t.Errorf("LOCK: %.300v", answer)
		}
	}
	for _, i := range refused {
		x.again.Add(1)
		x.lockAll(s, i, i+1)
	}
}

// shared makes many shared claims that wait for one claim, are granted together, and end.
func (x *extremes) shared() {
	request := func(i int) *models.CreateClaimRequest {
		r := x.longest("s", i)
		r.Resource, r.AllowDeadlock = longNameOf(400_000), true
		if i > 0 {
			r.Mode = models.Mode_MODE_SHARED
		}
		return r
	}
	answered(x, x.CreateClaim, request(0))
	at(x.waiters, func(i int) { answered(x, x.CreateClaim, request(i+1)) })
	x.end("s", 0)
	at(x.waiters, func(i int) {
		c := answered(x, x.AwaitClaim, &models.AwaitClaimRequest{Id: request(i + 1).GetId()})
		if c.GetStatus() != active || c.GetUserData() != longJSON {
			x.t.Errorf("a claim that shares is %s, with %d bytes", c.GetStatus(), len(c.GetUserData()))
		}
		x.end("s", i+1)
	})
}

func (x *extremes) end(kind string, n int) {
	answered(x, x.EndClaim, &models.EndClaimRequest{Id: longIDOf(kind, n), Reason: longNameOf(n)})
}

// lists requests lists of the greatest length.
func (x *extremes) lists() {
	ctx, cancel := x.call()
	defer cancel()
	filter := &models.ListClaimsRequest{
		Owner: proto.String(longNameOf(0)), Mode: models.Mode_MODE_EXCLUSIVE.Enum(), Status: []models.Status{active}, Limit: proto.Uint32(1000), Offset: 1 << 20,
		MinimumActiveDuration: proto.Float64(-longTTL), MaximumActiveDuration: proto.Float64(longTTL), MinimumTtl: proto.Float64(0), MaximumTtl: proto.Float64(longTTL),
		MaximumCreated: timestamppb.New(time.Now().Add(time.Hour)),
	}
	answered(x, x.ListClaims, filter)
	pages := &models.ListClaimsRequest{Limit: proto.Uint32(1000)}
	for n := 0; n == 0 || pages.GetPageToken() != ""; n++ {
		pages.PageToken = answered(x, x.ListClaims, pages).GetNextPageToken()
	}
	_, err := harness.Answered(x.t, func() (*models.FetchAllResponse, error) {
		return x.FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
	})
	x.refused("FetchAll", err, codes.ResourceExhausted, models.ReasonAnswerTooLarge)
	answered(x, x.FetchAll, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: proto.Uint32(1000)})
	answered(x, x.ListSessions, &models.ListSessionsRequest{Limit: proto.Uint32(1000)})
}

// watch counts the transitions of the claims.
func (x *extremes) watch() (changes *atomic.Int64) {
	changes = new(atomic.Int64)
	stream, err := x.Watch(x.t.Context(), &models.WatchRequest{Prefix: filler[:longName-6], NoSnapshot: true})
	harness.Must(x.t, err)
	_, err = stream.Recv() // the call has started
	harness.Must(x.t, err)
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				if x.t.Context().Err() == nil {
					x.t.Errorf("the watch ended with %v", err)
				}
				return
			}
			changes.Add(int64(len(response.GetTransitions())))
		}
	}()
	return changes
}

// run runs everything at the same time.
func (x *extremes) run() {
	changes := x.watch()
	var all sync.WaitGroup
	for _, do := range []func(){x.claims, x.cloudFoundry, x.rest, x.session, x.shared} {
		all.Go(do)
	}
	all.Wait()
	x.lists()
	at(2*x.amounts.claims, func(i int) { x.end("g", i) })
	want := int64((4+2+2)*x.amounts.claims + 2*x.locks + 3*x.waiters)
	harness.Eventually(x.t, func() error {
		if n := changes.Load(); n < want {
			return fmt.Errorf("the watch has told of %d changes, want %d", n, want)
		}
		return nil
	})
	x.t.Logf("%d calls were repeated", x.again.Load())
	for _, bad := range []string{"a request failed", "cut in two", "panic"} {
		if log := x.server.Log(); strings.Contains(log, bad) {
			x.t.Errorf("the log has %s", bad)
		}
	}
}

// TestAllLimits: when all limits are reached at the same time, over gRPC and over REST, each request is carried out or gets its documented
// error.
func TestAllLimits(t *testing.T) { allLimits(t, amounts{claims: 22, locks: 48, waiters: 8, ttl: 12}) }

func allLimits(t *testing.T, a amounts) {
	t.Helper()
	small := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	for name, database := range map[string]func(*testing.T) string{
		harness.EngineEmbedded: harness.Embedded,
		"mysql":                func(t *testing.T) string { return "mysql:" + harness.Unhurried(t, small.CreateDatabase(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			startExtremes(t, database(t), a).run()
		})
	}
}
