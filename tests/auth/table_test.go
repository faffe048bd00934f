package auth_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/methods"
	"github.com/locket-service/locket/tests/harness"
)

// callers has one caller for each right, and one without any; owner has claims, and may hold all resources.
var callers = []string{"nobody", "read", "hold", "revoke", "administer"}

const tableRules = `
rules:
  - {identity: "credential:owner", may: [hold], resource_prefix: ""}
  - {identity: "credential:read", may: [read], resource_prefix: ""}
  - {identity: "credential:hold", may: [hold], resource_prefix: ""}
  - {identity: "credential:revoke", may: [revoke], resource_prefix: ""}
  - {identity: "credential:administer", may: [administer], resource_prefix: ""}
`

// lastPrefix begins names that everybody may hold, so that a watch shows them last.
const lastPrefix = "last/"

const lastRule = `  - {everybody: true, may: [hold], resource_prefix: "` + lastPrefix + `"}
`

// scene is a resource with a lock that owner holds, and a claim of owner that waits.
type scene struct {
	*world
	resource, holder, waiter, user string
}

func (w *world) scene(n int, user string) scene {
	w.t.Helper()
	s := scene{w, fmt.Sprintf("r%d", n), fmt.Sprintf("holder%d", n), fmt.Sprintf("waiter%d", n), user}
	for _, id := range []string{s.holder, s.waiter} {
		_, err := w.CreateClaim(w.as("owner"), &models.CreateClaimRequest{Id: id, Resource: s.resource, Owner: "jim", Ttl: proto.Float64(600), UserData: proto.String(`"secret"`)})
		must(w.t, err)
	}
	return s
}

// watch returns nil if a watch shows the holder's claim, and errHidden if it does not. It creates a later claim of the
// caller, which the caller may always see: if a watch shows the later claim first, the holder's is hidden.
func (s scene) watch(ctx context.Context, request *models.WatchRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.Watch(ctx, request)
	if err != nil {
		return err
	}
	for synced := false; ; {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		claims := response.GetSnapshot()
		for _, transition := range response.GetTransitions() {
			claims = append(claims, transition.GetClaim())
		}
		for _, c := range claims {
			switch c.GetResource() {
			case s.resource:
				return nil
			case lastPrefix + s.resource:
				return errHidden
			}
		}
		if response.GetSynced() && !synced {
			synced = true
			_, err := s.UpdateClaim(s.as("owner"), &models.UpdateClaimRequest{Id: s.holder, Status: models.Status_STATUS_RELEASED})
			must(s.t, err)
			_, err = s.CreateClaim(s.as(s.user), &models.CreateClaimRequest{Resource: lastPrefix + s.resource, Ttl: proto.Float64(60)})
			must(s.t, err)
		}
	}
}

// ways is one way to use a method, with the callers that may. A method may have several.
type way struct {
	method string
	what   string
	may    []string
	do     func(ctx context.Context, s scene) error
}

var errHidden = status.Error(codes.NotFound, "the answer does not show it")

var table = []way{
	{"Lock", "a free name", []string{"hold"}, func(ctx context.Context, s scene) error {
		_, err := s.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: s.resource + "free", Owner: "o"}, TtlInSeconds: 60})
		return err
	}},
	{"Lock", "renew that of another identity", nil, func(ctx context.Context, s scene) error {
		_, err := s.Lock(ctx, &models.LockRequest{Resource: &models.Resource{Key: s.resource, Owner: "jim"}, TtlInSeconds: 60})
		return err
	}},
	{"Release", "that of another identity", []string{"revoke"}, func(ctx context.Context, s scene) error {
		_, err := s.Release(ctx, &models.ReleaseRequest{Resource: &models.Resource{Key: s.resource, Owner: "jim"}})
		return err
	}},
	{"Fetch", "", []string{"read"}, func(ctx context.Context, s scene) error {
		_, err := s.Fetch(ctx, &models.FetchRequest{Key: s.resource})
		return err
	}},
	{"FetchAll", "", []string{"read"}, func(ctx context.Context, s scene) error {
		all, err := s.FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
		if err == nil && !slices.ContainsFunc(all.GetResources(), func(r *models.Resource) bool { return r.GetKey() == s.resource }) {
			err = errHidden
		}
		return err
	}},
	{"FetchAll", "page by page", []string{"read"}, func(ctx context.Context, s scene) error {
		page, err := s.FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK, Limit: proto.Uint32(1000)})
		if err == nil && !slices.ContainsFunc(page.GetResources(), func(r *models.Resource) bool { return r.GetKey() == s.resource }) {
			err = errHidden
		}
		return err
	}},
	{"CreateClaim", "", []string{"hold"}, func(ctx context.Context, s scene) error {
		_, err := s.CreateClaim(ctx, &models.CreateClaimRequest{Resource: s.resource + "free2", Ttl: proto.Float64(60)})
		return err
	}},
	{"CreateClaim", "repeat that of another identity", nil, func(ctx context.Context, s scene) error {
		_, err := s.CreateClaim(ctx, &models.CreateClaimRequest{Id: s.holder, Resource: s.resource, Owner: "jim", Ttl: proto.Float64(600), UserData: proto.String(`"secret"`)})
		return err
	}},
	{"GetClaim", "", []string{"read"}, func(ctx context.Context, s scene) error {
		c, err := s.GetClaim(ctx, &models.GetClaimRequest{Id: s.holder})
		if c.GetUserData() != "" {
			return fmt.Errorf("the user data of another identity: %s", c)
		}
		return err
	}},
	{"ListClaims", "", []string{"read"}, func(ctx context.Context, s scene) error {
		list, err := s.ListClaims(ctx, &models.ListClaimsRequest{Limit: proto.Uint32(1000)})
		if err == nil && !slices.ContainsFunc(list.GetClaims(), func(c *models.Claim) bool { return c.GetId() == s.holder }) {
			err = errHidden
		}
		return err
	}},
	{"UpdateClaim", "renew", []string{"administer"}, func(ctx context.Context, s scene) error {
		c, err := s.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: s.holder, Ttl: proto.Float64(1000)})
		if err == nil && c.GetUserData() != `"secret"` {
			return fmt.Errorf("who may administer sees no user data: %s", c)
		}
		return err
	}},
	{"UpdateClaim", "revoke", []string{"revoke"}, func(ctx context.Context, s scene) error {
		c, err := s.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: s.holder, Status: models.Status_STATUS_REVOKED})
		if err == nil && !proto.Equal(c, &models.Claim{Id: s.holder, Status: models.Status_STATUS_REVOKED}) {
			return fmt.Errorf("the claim after it: %s", c)
		}
		return err
	}},
	{"UpdateClaim", "ask whether it is active", []string{"read"}, func(ctx context.Context, s scene) error {
		c, err := s.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: s.holder, Status: models.Status_STATUS_ACTIVE})
		if c.GetUserData() != "" {
			return fmt.Errorf("the user data of another identity: %s", c)
		}
		return err
	}},
	{"AwaitClaim", "", []string{"read"}, func(ctx context.Context, s scene) error {
		_, err := s.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: s.holder})
		return err
	}},
	{"EndClaim", "", []string{"revoke"}, func(ctx context.Context, s scene) error {
		_, err := s.EndClaim(ctx, &models.EndClaimRequest{Id: s.waiter})
		return err
	}},
	{"GetQueue", "", []string{"read"}, func(ctx context.Context, s scene) error {
		_, err := s.GetQueue(ctx, &models.GetQueueRequest{Resource: s.resource})
		return err
	}},
	{"Session", "lock", []string{"hold"}, func(ctx context.Context, s scene) error {
		stream, err := s.Session(ctx)
		if err != nil {
			return err
		}
		for _, request := range []*models.SessionRequest{
			{Sequence: 1, Command: &models.SessionRequest_Open{Open: &models.OpenSession{Id: "session-" + s.resource + "-of-the-table", Secret: "0123456789abcdef", Ttl: 600}}},
			{Sequence: 2, Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: s.resource + "free3"}}},
		} {
			_ = stream.Send(request) // Recv returns why it ended
		}
		for {
			response, err := stream.Recv()
			if refused := response.GetError(); refused != nil {
				return status.Error(codes.Code(refused.GetCode()), refused.GetMessage())
			}
			if err != nil || response.GetStatus() != nil {
				return err
			}
			if refused := response.GetError(); refused != nil {
				return status.Error(codes.Code(refused.GetCode()), refused.GetMessage())
			}
		}
	}},
	{"ListSessions", "", []string{"administer"}, func(ctx context.Context, s scene) error {
		id := "session-" + s.resource + "-of-owner"
		defer s.open("owner", id)()
		sessions, err := listSessions(ctx, s.world)
		if err == nil && !slices.Contains(sessions, id) {
			err = errHidden
		}
		return err
	}},
	{"ListResources", "by name", []string{"read"}, func(ctx context.Context, s scene) error {
		return s.listed(ctx, models.ResourceOrder_RESOURCE_ORDER_NAME)
	}},
	{"ListResources", "most contended first", []string{"read"}, func(ctx context.Context, s scene) error {
		return s.listed(ctx, models.ResourceOrder_RESOURCE_ORDER_CONTENDED)
	}},
	{"GetSession", "", []string{"administer"}, func(ctx context.Context, s scene) error {
		id := "session-" + s.resource + "-of-owner"
		defer s.open("owner", id)()
		_, err := s.GetSession(ctx, &models.GetSessionRequest{Id: id})
		return err
	}},
	{"EndSession", "", []string{"administer"}, func(ctx context.Context, s scene) error {
		id := "session-" + s.resource + "-of-owner"
		defer s.open("owner", id)()
		_, err := s.EndSession(ctx, &models.EndSessionRequest{Id: id})
		return err
	}},
	{"GetStatus", "", []string{"administer"}, func(ctx context.Context, s scene) error {
		_, err := s.GetStatus(ctx, &models.GetStatusRequest{})
		return err
	}},
	{"ResetSessions", "", []string{"administer"}, func(ctx context.Context, s scene) error {
		_, err := s.ResetSessions(ctx, &models.ResetSessionsRequest{Keep: []string{"0123456789abcdef"}})
		return err
	}},
	{"Watch", "a resource", []string{"read"}, func(ctx context.Context, s scene) error {
		return s.watch(ctx, &models.WatchRequest{Resource: &s.resource})
	}},
	{"Watch", "all", []string{"read"}, func(ctx context.Context, s scene) error {
		return s.watch(ctx, &models.WatchRequest{})
	}},
	{"Watch", "what happens", []string{"read"}, func(ctx context.Context, s scene) error {
		return s.watch(ctx, &models.WatchRequest{NoSnapshot: true})
	}},
	{"WhoAmI", "", callers, func(ctx context.Context, s scene) error {
		id, err := s.WhoAmI(ctx, &models.WhoAmIRequest{})
		if err == nil && (id.GetName() != "credential:"+s.user || !slices.Equal(id.GetGroups(), []string{"credential:people", "credential:" + s.user + "-group"}) || !id.GetAuthentication()) {
			return fmt.Errorf("the identity %s", id)
		}
		return err
	}},
	{"CanI", "", callers, func(ctx context.Context, s scene) error {
		for number, name := range models.Right_name {
			if number == 0 {
				continue
			}
			answer, err := s.CanI(ctx, &models.CanIRequest{Right: models.Right(number), Resource: s.resource})
			if want := strings.EqualFold(strings.TrimPrefix(name, "RIGHT_"), s.user); err != nil || answer.GetAllowed() != want {
				return fmt.Errorf("%s: %s, %w", name, answer, err)
			}
		}
		return nil
	}},
}

// listed lists all resources, and looks for the scene's.
func (s scene) listed(ctx context.Context, order models.ResourceOrder) error {
	for request := (&models.ListResourcesRequest{Order: order, Limit: proto.Uint32(3)}); ; {
		page, err := s.ListResources(ctx, request)
		if err != nil || slices.ContainsFunc(page.GetResources(), func(r *models.ResourceInfo) bool { return r.GetResource() == s.resource }) {
			return err
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			return errHidden
		}
	}
}

// allowed reports whether an error means that the call was allowed. Tests of the methods check the rest. An
// unimplemented method counts as allowed.
func allowed(err error) (bool, error) {
	switch status.Code(err) {
	case codes.OK, codes.Unimplemented:
		return true, nil
	case codes.PermissionDenied, codes.NotFound:
		return false, nil
	case codes.AlreadyExists:
		info := models.ErrorInfoOf(err)
		if info.GetReason() == models.ReasonIDTaken || info.GetReason() == models.ReasonLockCollision && len(info.GetMetadata()) == 0 { // which names nobody
			return false, nil
		}
	}
	return false, err
}

func TestTable(t *testing.T) {
	t.Parallel()
	w := start(t, tableRules+lastRule, append(callers, "owner"))
	for _, method := range methods.Names() {
		if !slices.ContainsFunc(table, func(way way) bool { return way.method == method }) {
			t.Errorf("nobody has decided who may call %s", method)
		}
	}
	n := 0
	for _, way := range table {
		for _, user := range callers {
			n++
			ctx, cancel := context.WithTimeout(w.as(user), harness.HangTimeout)
			err := way.do(ctx, w.scene(n, user))
			cancel()
			got, err := allowed(err)
			if want := slices.Contains(way.may, user); err != nil || got != want {
				t.Errorf("%s %s by who may %s: allowed %v (%v), want %v", way.method, way.what, user, got, err, want)
			}
		}
	}
}

// routeTable has the callers that may use each operation of REST.
var routeTable = map[string][]string{
	"createClaim": {"hold"}, "listClaims": {"read"}, "getClaim": {"read"}, "updateClaim": {"administer"}, "refreshClaim": {"administer"},
	"endClaim": {"revoke"}, "getResource": {"read"}, "listLocks": {"read"}, "getLock": {"read"},
	"listPresences": {}, "getPresence": {}, // there is none
	"listResources": {"read"}, "getStatus": {"administer"},
	"listSessions": {}, "getSession": {}, "endSession": {}, // there is none
	"watch": {"read"}, "whoAmI": callers, "canI": callers,
}

func TestRoutes(t *testing.T) {
	w := start(t, tableRules, append(callers, "owner"))
	n := 0
	for _, route := range routes(t, http.DefaultClient, "http://"+w.HTTPAddress()) {
		may, decided := routeTable[route.id]
		if !decided {
			t.Errorf("nobody has decided who may use %s", route)
		}
		for _, user := range callers {
			n++
			s := w.scene(n, user)
			about := target{resource: s.resource, holder: s.holder, session: "session-that-is-not-there"}
			code, _, body := w.http(user, route.method, route.address(about), route.content(about))
			got := code < 300
			if strings.HasPrefix(route.id, "list") {
				got = strings.Contains(body, `"`+s.resource+`"`) // ids are random: they may contain it
			}
			if want := slices.Contains(may, user); got != want || !got && code >= 300 && code != http.StatusForbidden && code != http.StatusNotFound {
				t.Errorf("%s by who may %s: %d %s, want %v", route, user, code, body, want)
			}
			if user != "administer" && strings.Contains(body, "secret") {
				t.Errorf("%s shows the user data of another identity: %s", route, body)
			}
		}
	}
}
