package handlers_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// This file has the tests of Cloud Foundry's Locket (docs/sources.md).

func TestLock(t *testing.T) {
	s := start(t)
	held := &models.Resource{Key: "k", Owner: "jim", Value: "v1", TypeCode: models.TypeCode_LOCK}
	first, err := s.Lock(t.Context(), &models.LockRequest{Resource: held, TtlInSeconds: 60})
	must(t, err)
	if first.GetToken() == 0 || first.GetRenewed() {
		t.Error("a grant without a token, or renewed")
	}
	fetched, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"})
	must(t, err)
	held.Type = "lock"
	if !proto.Equal(fetched.GetResource(), held) || fetched.GetToken() != first.GetToken() {
		t.Errorf("fetched %v", fetched)
	}

	t.Run("renewing keeps the token and updates the value", func(t *testing.T) {
		held.Value = "v2"
		again, err := s.Lock(t.Context(), &models.LockRequest{Resource: held, TtlInSeconds: 60})
		must(t, err)
		fetched, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"})
		must(t, err)
		if again.GetToken() != first.GetToken() || !again.GetRenewed() || fetched.GetResource().GetValue() != "v2" {
			t.Errorf("token %d, then %d; fetched %v", first.GetToken(), again.GetToken(), fetched)
		}
	})
	t.Run("another owner collides", func(t *testing.T) {
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "joe"), TtlInSeconds: 60})
		collides(t, err, "jim", first.GetToken())
	})
	t.Run("another owner cannot release", func(t *testing.T) {
		_, err := s.Release(t.Context(), &models.ReleaseRequest{Resource: resource("k", "joe")})
		collides(t, err, "jim", first.GetToken())
	})
	t.Run("names are bytes", func(t *testing.T) {
		for _, key := range []string{"K", "k ", " k", "ｋ"} {
			_, err := s.Fetch(t.Context(), &models.FetchRequest{Key: key})
			isError(t, err, models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
		}
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "JIM"), TtlInSeconds: 60})
		collides(t, err, "jim", first.GetToken())
	})
	t.Run("released, it is gone", func(t *testing.T) {
		must(t, s.release(t, "k", "jim", 0))
		_, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"})
		isError(t, err, models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
		isError(t, s.release(t, "k", "jim", 0), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	})
	t.Run("the next grant has a larger token", func(t *testing.T) {
		if next := s.lock(t, "k", "joe", 60); next <= first.GetToken() {
			t.Errorf("token %d after %d", next, first.GetToken())
		}
	})
}

func (s *server) release(t testing.TB, key, owner string, token uint64) error {
	req := &models.ReleaseRequest{Resource: resource(key, owner)}
	if token != 0 {
		req.Token = &token
	}
	_, err := s.Release(t.Context(), req)
	return err
}

// collides fails the test unless err is the collision with this holder.
func collides(t *testing.T, err error, holder string, token uint64) {
	t.Helper()
	isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
	metadata := models.ErrorInfoOf(err).GetMetadata()
	if metadata["holder"] != holder || metadata["token"] != strconv.FormatUint(token, 10) || metadata["claim_id"] == "" {
		t.Errorf("metadata %v, want holder %s with token %d", metadata, holder, token)
	}
}

func TestReleaseByToken(t *testing.T) {
	s := start(t)
	old := s.lock(t, "k", "jim", 60)
	must(t, s.release(t, "k", "jim", old))
	now := s.lock(t, "k", "jim", 60)
	isError(t, s.release(t, "k", "jim", old), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	isError(t, s.release(t, "k", "jim", now+1), models.ErrRolledBack, "ROLLED_BACK")
	collides(t, s.release(t, "k", "joe", old), "jim", now)
	if _, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"}); err != nil {
		t.Fatalf("a late release freed the successor's lock: %v", err)
	}
	must(t, s.release(t, "k", "jim", now))
}

// TestRenewalByToken: only the grant with the token is renewed, and no lock is acquired.
func TestRenewalByToken(t *testing.T) {
	s := start(t)
	isError(t, s.renew(t, "k", "jim", 1), models.ErrRolledBack, "ROLLED_BACK")
	old := s.lock(t, "k", "jim", 60)
	must(t, s.renew(t, "k", "jim", old))
	must(t, s.release(t, "k", "jim", old))
	isError(t, s.renew(t, "k", "jim", old), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	if claims := s.list(t, &models.ListClaimsRequest{}).GetClaims(); len(claims) != 1 {
		t.Errorf("a late renewal took the lock again: %v", claims)
	}

	now := s.lock(t, "k", "jim", 60)
	s.create(t, "k", "waits", 60)
	before := s.state(t)
	isError(t, s.renew(t, "k", "jim", old), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	isError(t, s.renew(t, "k", "jim", now+1), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	collides(t, s.renew(t, "k", "joe", now), "jim", now)
	if after := s.state(t); after != before {
		t.Errorf("refused renewals made %q of %q", after, before)
	}

	changed := &models.Resource{Key: "k", Owner: "jim", Value: "new", Type: "presence", TypeCode: models.TypeCode_PRESENCE}
	resp, err := s.Lock(t.Context(), &models.LockRequest{Resource: changed, TtlInSeconds: 3600, Token: &now})
	must(t, err)
	fetched, err := s.Fetch(t.Context(), &models.FetchRequest{Key: "k"})
	must(t, err)
	if resp.GetToken() != now || fetched.GetToken() != now || !proto.Equal(fetched.GetResource(), changed) {
		t.Errorf("renewed with token %d: %v; fetched %v", now, resp, fetched)
	}
	held := s.list(t, &models.ListClaimsRequest{Status: []models.Status{active}}).GetClaims()
	if len(held) != 1 || held[0].GetTtl() < 3000 {
		t.Errorf("held: %v", held)
	}
}

// TestSharedCollision: a resource with several holders names none of them.
func TestSharedCollision(t *testing.T) {
	s := start(t)
	s.create(t, "k", "reader", 60, shared)
	_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "jim"), TtlInSeconds: 60})
	isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
	if metadata := models.ErrorInfoOf(err).GetMetadata(); len(metadata) != 1 || metadata["mode"] != "shared" {
		t.Errorf("metadata %v", metadata)
	}
	isError(t, s.release(t, "k", "jim", 0), models.ErrLockCollision, "LOCK_COLLISION")
	isError(t, s.renew(t, "k", "jim", s.get(t, "reader").GetToken()), models.ErrLockCollision, "LOCK_COLLISION")
}

// TestLockNeverWaits: a lock that is refused leaves nothing behind.
func TestLockNeverWaits(t *testing.T) {
	s := start(t)
	s.lock(t, "k", "jim", 60)
	_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource("k", "joe"), TtlInSeconds: 60})
	isError(t, err, models.ErrLockCollision, "LOCK_COLLISION")
	if claims := s.list(t, &models.ListClaimsRequest{}).GetClaims(); len(claims) != 1 || claims[0].GetOwner() != "jim" {
		t.Errorf("claims %v", claims)
	}
}

func TestTypes(t *testing.T) {
	const (
		none     = models.TypeCode_UNKNOWN
		lock     = models.TypeCode_LOCK
		presence = models.TypeCode_PRESENCE
	)
	s := start(t)
	for i, c := range []struct {
		code  models.TypeCode
		name  string
		valid bool
		is    models.TypeCode
		shown string
	}{
		{none, "", true, none, ""},
		{none, "lock", true, lock, "lock"},
		{none, "presence", true, presence, "presence"},
		{lock, "", true, lock, "lock"},
		{lock, "lock", true, lock, "lock"},
		{presence, "", true, presence, "presence"},
		{presence, "presence", true, presence, "presence"},
		{lock, "presence", false, 0, ""},
		{presence, "lock", false, 0, ""},
		{none, "Lock", false, 0, ""},
		{none, "lock ", false, 0, ""},
		{none, "other", false, 0, ""},
		{lock, "other", false, 0, ""},
		{3, "", false, 0, ""},
		{3, "lock", false, 0, ""},
		{-1, "", false, 0, ""},
		{256, "", false, 0, ""},
		{257, "lock", false, 0, ""},
	} {
		t.Run(c.code.String()+" "+c.name, func(t *testing.T) {
			key := number("k", i)
			asked := &models.Resource{Key: key, Owner: "o", Type: c.name, TypeCode: c.code}
			_, err := s.Lock(t.Context(), &models.LockRequest{Resource: asked, TtlInSeconds: 60})
			all, errAll := s.FetchAll(t.Context(), &models.FetchAllRequest{Type: c.name, TypeCode: c.code})
			fetched, errFetch := s.Fetch(t.Context(), &models.FetchRequest{Key: key})
			if !c.valid {
				isError(t, err, models.ErrInvalidType, "INVALID_TYPE")
				isError(t, errAll, models.ErrInvalidType, "INVALID_TYPE")
				isError(t, errFetch, models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
				return
			}
			must(t, errors.Join(err, errFetch))
			want := &models.Resource{Key: key, Owner: "o", Type: c.shown, TypeCode: c.is}
			if !proto.Equal(fetched.GetResource(), want) {
				t.Errorf("fetched %v", fetched.GetResource())
			}
			if c.is == none {
				isError(t, errAll, models.ErrInvalidType, "INVALID_TYPE")
				return
			}
			must(t, errAll)
			isIt := func(r *models.Resource) bool { return proto.Equal(r, want) }
			otherType := func(r *models.Resource) bool { return r.GetTypeCode() != c.is }
			if !slices.ContainsFunc(all.GetResources(), isIt) || slices.ContainsFunc(all.GetResources(), otherType) {
				t.Errorf("fetched all %v", all.GetResources())
			}
		})
	}
}

// TestTypeChanges: the same owner may renew with another type, and is then listed under it.
func TestTypeChanges(t *testing.T) {
	s := start(t)
	s.lock(t, "k", "o", 60)
	_, err := s.Lock(t.Context(), &models.LockRequest{
		Resource: &models.Resource{Key: "k", Owner: "o", TypeCode: models.TypeCode_PRESENCE}, TtlInSeconds: 60,
	})
	must(t, err)
	for code, want := range map[models.TypeCode]int{models.TypeCode_LOCK: 0, models.TypeCode_PRESENCE: 1} {
		all, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: code})
		must(t, err)
		if len(all.GetResources()) != want {
			t.Errorf("%s: %v", code, all.GetResources())
		}
	}
}

// TestFetchAllListsHolders: waiting and released locks are not listed.
func TestFetchAllListsHolders(t *testing.T) {
	s := start(t)
	s.lock(t, "gone", "o", 60)
	must(t, s.release(t, "gone", "o", 0))
	s.lock(t, "held", "o", 60)
	s.create(t, "held", "waits", 60)
	s.create(t, "read", "r1", 60, shared)
	s.create(t, "read", "r2", 60, shared)
	all, err := s.FetchAll(t.Context(), &models.FetchAllRequest{TypeCode: models.TypeCode_LOCK})
	must(t, err)
	var keys []string
	for _, r := range all.GetResources() {
		keys = append(keys, r.GetKey())
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"held", "read", "read"}) {
		t.Errorf("fetched all %q", keys)
	}
}

// TestOrderOfValidation: a request with several errors gets the answer of Cloud Foundry's Locket.
func TestOrderOfValidation(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		name     string
		resource *models.Resource
		ttl      int64
		want     error
		reason   string
		field    string
		limit    string // the limit in the details of the field
	}{
		{
			"all wrong", &models.Resource{Type: "other"}, 0, models.ErrInvalidType, "INVALID_TYPE",
			"resource.type", `must be "lock" or "presence", and agree with type_code`,
		},
		{"ttl, owner and key wrong", &models.Resource{}, 0, models.ErrInvalidTTL, "INVALID_TTL", "ttl_in_seconds", "must be between 1 and 3155760000"},
		{"negative ttl", resource("k", "o"), -1, models.ErrInvalidTTL, "INVALID_TTL", "ttl_in_seconds", "must be between 1 and 3155760000"},
		{"ttl above the limit", resource("k", "o"), 3155760001, models.ErrInvalidTTL, "INVALID_TTL", "ttl_in_seconds", "must be between 1 and 3155760000"},
		{"owner and key wrong", &models.Resource{}, 1, models.ErrInvalidOwner, "INVALID_OWNER", "resource.owner", "is required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, token := range []*uint64{nil, ptr(uint64(0))} {
				_, err := s.Lock(t.Context(), &models.LockRequest{Resource: c.resource, TtlInSeconds: c.ttl, Token: token})
				isError(t, err, c.want, c.reason)
				wrong := detail[*errdetails.BadRequest](err).GetFieldViolations()
				if len(wrong) != 1 || wrong[0].GetField() != c.field || wrong[0].GetDescription() != c.limit {
					t.Errorf("details %v, want %s: %s", wrong, c.field, c.limit)
				}
			}
		})
	}
}

// TestRetries: requests that have already succeeded may be repeated.
func TestRetries(t *testing.T) {
	s := start(t)
	token := s.lock(t, "k", "o", 60)
	if again := s.lock(t, "k", "o", 60); again != token {
		t.Errorf("token %d, then %d", token, again)
	}
	if claims := s.list(t, &models.ListClaimsRequest{}).GetClaims(); len(claims) != 1 {
		t.Errorf("%d claims after a retry", len(claims))
	}
	for range 2 {
		must(t, s.renew(t, "k", "o", token))
	}
	must(t, s.release(t, "k", "o", token))
	next := s.lock(t, "k", "o", 60)
	before := s.state(t)
	for range 2 { // repeat the requests before the release
		isError(t, s.renew(t, "k", "o", token), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
		isError(t, s.release(t, "k", "o", token), models.ErrResourceNotFound, "RESOURCE_NOT_FOUND")
	}
	if after := s.state(t); after != before {
		t.Errorf("late retries made %q of %q, the grant with token %d", after, before, next)
	}
}
