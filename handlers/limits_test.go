package handlers_test

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/models"
)

const (
	maxName = 1024
	maxData = 65536
	years   = 100 * 365.25 * 24 * 60 * 60 // a hundred, in seconds
)

// limit is a request exactly at a limit, or just beyond it.
type limit struct {
	name string
	// call sends the request.
	call func(ctx context.Context, s *server) error
	// wrong is the invalid field; "" if the request is valid.
	wrong string
	// says is a part of the error about this field.
	says string
}

// names are the limits of a field with a name.
func names(field string, call func(ctx context.Context, s *server, name string) error) []limit {
	with := func(name string) func(context.Context, *server) error {
		return func(ctx context.Context, s *server) error { return call(ctx, s, name) }
	}
	return []limit{
		{field + " at the limit", with(strings.Repeat("n", maxName)), "", ""},
		{field + " past the limit", with(strings.Repeat("n", maxName+1)), field, "has 1025 bytes, and at most 1024 are allowed"},
		{field + " in bytes at the limit", with(strings.Repeat("é", maxName/2)), "", ""},
		{field + " in bytes past the limit", with(strings.Repeat("é", maxName/2) + "n"), field, "1024"},
		{field + " odd", with("a b/c?d#e%2f'\"\\\n\t漢字🔒\u202e"), "", ""},
		{field + " with NUL", with("a\x00b"), field, "contains a NUL byte"},
	}
}

// seconds are the limits of a field with a TTL.
func seconds(call func(ctx context.Context, s *server, ttl float64) error) []limit {
	var limits []limit
	for ttl, good := range map[float64]bool{
		0: true, 1e-9: true, 0.5: true, years: true, math.Copysign(0, -1): true,
		-1: false, -1e-9: false, years + 1: false, 1e300: false, math.NaN(): false, math.Inf(1): false, math.Inf(-1): false,
	} {
		l := limit{name: fmt.Sprint("ttl ", ttl), call: func(ctx context.Context, s *server) error { return call(ctx, s, ttl) }}
		if !good {
			l.wrong, l.says = "ttl", "between 0 and 3155760000"
		}
		limits = append(limits, l)
	}
	return limits
}

func lockLimits() []limit {
	lock := func(ctx context.Context, s *server, r *models.Resource) error {
		_, err := s.Lock(ctx, &models.LockRequest{Resource: r, TtlInSeconds: 60})
		return err
	}
	release := func(ctx context.Context, s *server, r *models.Resource) error {
		_, err := s.Release(ctx, &models.ReleaseRequest{Resource: r})
		return err
	}
	return slices.Concat(
		names("resource.key", func(ctx context.Context, s *server, name string) error {
			return lock(ctx, s, resource(name, "o"))
		}),
		names("resource.key", func(ctx context.Context, s *server, name string) error {
			return release(ctx, s, resource(name, "o"))
		}),
		names("resource.owner", func(ctx context.Context, s *server, name string) error {
			return lock(ctx, s, resource(fmt.Sprintf("owned by %.10q", name), name))
		}),
		names("resource.owner", func(ctx context.Context, s *server, name string) error {
			return release(ctx, s, resource("none", name))
		}),
		names("key", func(ctx context.Context, s *server, name string) error {
			_, err := s.Fetch(ctx, &models.FetchRequest{Key: name})
			return err
		}),
		[]limit{
			{"value at the limit", func(ctx context.Context, s *server) error {
				return lock(ctx, s, &models.Resource{Key: "v", Owner: "o", Value: strings.Repeat("v", maxData)})
			}, "", ""},
			{"value past the limit", func(ctx context.Context, s *server) error {
				return lock(ctx, s, &models.Resource{Key: "v", Owner: "o", Value: strings.Repeat("v", maxData+1)})
			}, "resource.value", "65537 bytes, and at most 65536"},
			{"no key to lock", func(ctx context.Context, s *server) error {
				return lock(ctx, s, resource("", "o"))
			}, "resource.key", "is required"},
			{"no key to release", func(ctx context.Context, s *server) error {
				return release(ctx, s, resource("", "o"))
			}, "resource.key", "is required"},
			{"no key to fetch", func(ctx context.Context, s *server) error {
				_, err := s.Fetch(ctx, &models.FetchRequest{})
				return err
			}, "key", "is required"},
			{"no resource to lock", func(ctx context.Context, s *server) error {
				return lock(ctx, s, nil)
			}, "resource", "is required"},
			{"no resource to release", func(ctx context.Context, s *server) error {
				return release(ctx, s, nil)
			}, "resource", "is required"},
			{"a token to renew that is none", func(ctx context.Context, s *server) error {
				_, err := s.Lock(ctx, &models.LockRequest{Resource: resource("k", "o"), TtlInSeconds: 60, Token: ptr(uint64(0))})
				return err
			}, "token", "must not be 0"},
			{"the largest token to renew", func(ctx context.Context, s *server) error {
				_, err := s.Lock(ctx, &models.LockRequest{Resource: resource("k", "o"), TtlInSeconds: 60, Token: ptr(uint64(math.MaxUint64))})
				return err
			}, "", ""},
			{"a token that is none", func(ctx context.Context, s *server) error {
				_, err := s.Release(ctx, &models.ReleaseRequest{Resource: resource("k", "o"), Token: ptr(uint64(0))})
				return err
			}, "token", "0"},
			{"the largest token", func(ctx context.Context, s *server) error {
				_, err := s.Release(ctx, &models.ReleaseRequest{Resource: resource("k", "o"), Token: ptr(uint64(math.MaxUint64))})
				return err
			}, "", ""},
		})
}

func createLimits() []limit {
	n := 0
	create := func(change func(*models.CreateClaimRequest)) func(context.Context, *server) error {
		return func(ctx context.Context, s *server) error {
			n++
			req := &models.CreateClaimRequest{Resource: number("limit", n), Ttl: ptr(60.0)}
			change(req)
			_, err := s.CreateClaim(ctx, req)
			return err
		}
	}
	json := func(size int) func(req *models.CreateClaimRequest) {
		return func(req *models.CreateClaimRequest) { req.UserData = ptr(`"` + strings.Repeat("j", size-2) + `"`) }
	}
	nested := func(levels int, in string) func(req *models.CreateClaimRequest) {
		return func(req *models.CreateClaimRequest) {
			req.UserData = ptr(strings.Repeat("[", levels) + in + strings.Repeat("]", levels))
		}
	}
	wait := func(ttl float64) func(context.Context, *server) error {
		return create(func(req *models.CreateClaimRequest) { req.WaitTtl = &ttl })
	}
	return slices.Concat(
		names("resource", func(ctx context.Context, s *server, name string) error {
			return create(func(req *models.CreateClaimRequest) { req.Resource = name })(ctx, s)
		}),
		names("owner", func(ctx context.Context, s *server, name string) error {
			return create(func(req *models.CreateClaimRequest) { req.Owner = name })(ctx, s)
		}),
		seconds(func(ctx context.Context, s *server, ttl float64) error {
			return create(func(req *models.CreateClaimRequest) { req.Ttl = &ttl })(ctx, s)
		}),
		[]limit{
			{"no resource", create(func(req *models.CreateClaimRequest) { req.Resource = "" }), "resource", "is required"},
			{"no ttl", create(func(req *models.CreateClaimRequest) { req.Ttl = nil }), "ttl", "is required"},
			{"shortest wait ttl", wait(1), "", ""},
			{"longest wait ttl", wait(years), "", ""},
			{"no time to wait", wait(0), "wait_ttl", "between 1 and 3155760000"},
			{"wait ttl too short", wait(0.999), "wait_ttl", "between 1 and 3155760000"},
			{"wait ttl too long", wait(years + 1), "wait_ttl", "between 1 and 3155760000"},
			{"wait ttl NaN", wait(math.NaN()), "wait_ttl", "between 1 and 3155760000"},
			{"infinite wait ttl", wait(math.Inf(1)), "wait_ttl", "between 1 and 3155760000"},
			{"no owner", create(func(req *models.CreateClaimRequest) { req.Owner = "" }), "", ""},
			{"user data at the limit", create(json(maxData)), "", ""},
			{"user data past the limit", create(json(maxData + 1)), "user_data", "65537 bytes, and at most 65536"},
			{"value at the limit", create(func(req *models.CreateClaimRequest) { req.Value = strings.Repeat("v", maxData) }), "", ""},
			{"value past the limit", create(func(req *models.CreateClaimRequest) { req.Value = strings.Repeat("v", maxData+1) }), "value", "65536"},
			{"user data that is no JSON", create(func(req *models.CreateClaimRequest) { req.UserData = ptr("{") }), "user_data", "is not valid JSON"},
			{"user data that nests as deep as it may", create(nested(1000, "")), "", ""},
			{"user data that nests deeper", create(nested(1001, "")), "user_data", "more than 1000 levels"},
			{"user data with brackets in texts", create(nested(1000, `"[[{\\\"[["`)), "", ""},
			{"user data that nests behind a text", create(nested(1000, `"\\", "]]", {}`)), "user_data", "more than 1000 levels"},
			{"no user data at all", create(func(req *models.CreateClaimRequest) { req.UserData = ptr("") }), "user_data", "is not valid JSON"},
			{"an unknown mode", create(func(req *models.CreateClaimRequest) { req.Mode = 2 }), "mode", "unknown mode 2"},
			{"a mode past a byte", create(func(req *models.CreateClaimRequest) { req.Mode = 256 }), "mode", "256"},
			{"an unknown type", create(func(req *models.CreateClaimRequest) { req.TypeCode = 3 }), "type_code", "unknown type 3"},
			{"a negative type", create(func(req *models.CreateClaimRequest) { req.TypeCode = -255 }), "type_code", "-255"},
			{"id at the limit", create(func(req *models.CreateClaimRequest) { req.Id = strings.Repeat("i", 128) }), "", ""},
			{"id past the limit", create(func(req *models.CreateClaimRequest) { req.Id = strings.Repeat("i", 129) }), "id", "1 to 128"},
			{"id with all it may have", create(func(req *models.CreateClaimRequest) { req.Id = "azAZ09-._~" }), "", ""},
			{"id with a slash", create(func(req *models.CreateClaimRequest) { req.Id = "a/b" }), "id", "letters, digits"},
			{"id with a space", create(func(req *models.CreateClaimRequest) { req.Id = "a b" }), "id", "letters, digits"},
			{"id with an accent", create(func(req *models.CreateClaimRequest) { req.Id = "é" }), "id", "letters, digits"},
			{"id next to the letters", create(func(req *models.CreateClaimRequest) { req.Id = "a[" }), "id", "letters, digits"},
			{"id with NUL", create(func(req *models.CreateClaimRequest) { req.Id = "a\x00" }), "id", "letters, digits"},
			{"id of dots", create(func(req *models.CreateClaimRequest) { req.Id = "..." }), "id", "not dots alone"},
		})
}

func updateLimits() []limit {
	update := func(ctx context.Context, s *server, req *models.UpdateClaimRequest) error {
		_, err := s.UpdateClaim(ctx, req)
		return err
	}
	return slices.Concat(
		seconds(func(ctx context.Context, s *server, ttl float64) error {
			return update(ctx, s, &models.UpdateClaimRequest{Id: "kept", Ttl: &ttl})
		}),
		seconds(func(ctx context.Context, s *server, ttl float64) error {
			return update(ctx, s, &models.UpdateClaimRequest{Id: "kept", Ttl: &ttl, Status: active})
		}),
		names("reason", func(ctx context.Context, s *server, name string) error {
			return update(ctx, s, &models.UpdateClaimRequest{Id: "ended", Status: withdrawn, Reason: name})
		}))
}

func endLimits() []limit {
	return names("reason", func(ctx context.Context, s *server, name string) error {
		_, err := s.EndClaim(ctx, &models.EndClaimRequest{Id: "ended", Reason: name})
		return err
	})
}

func queueLimits() []limit {
	queue := func(req *models.GetQueueRequest) func(context.Context, *server) error {
		return func(ctx context.Context, s *server) error {
			_, err := s.GetQueue(ctx, req)
			return err
		}
	}
	type request = models.GetQueueRequest
	return slices.Concat(
		names("resource", func(ctx context.Context, s *server, name string) error {
			return queue(&request{Resource: name})(ctx, s)
		}),
		[]limit{
			{"no resource", queue(&request{Limit: ptr(uint32(1))}), "resource", "is required"},
			{"limit 0", queue(&request{Resource: "kept", Limit: ptr(uint32(0))}), "limit", "between 1 and 1000"},
			{"limit 1", queue(&request{Resource: "kept", Limit: ptr(uint32(1))}), "", ""},
			{"limit 1000", queue(&request{Resource: "kept", Limit: ptr(uint32(1000))}), "", ""},
			{"limit 1001", queue(&request{Resource: "kept", Limit: ptr(uint32(1001))}), "limit", "between 1 and 1000"},
			{"the largest limit", queue(&request{Resource: "kept", Limit: ptr(uint32(math.MaxUint32))}), "limit", "1000"},
		})
}

func listLimits() []limit {
	list := func(req *models.ListClaimsRequest) func(context.Context, *server) error {
		return func(ctx context.Context, s *server) error {
			_, err := s.ListClaims(ctx, req)
			return err
		}
	}
	type filter = models.ListClaimsRequest
	limits := slices.Concat(
		names("resource", func(ctx context.Context, s *server, name string) error {
			return list(&filter{Resource: &name})(ctx, s)
		}),
		names("owner", func(ctx context.Context, s *server, name string) error {
			return list(&filter{Owner: &name})(ctx, s)
		}),
		[]limit{
			{"limit 0", list(&filter{Limit: ptr(uint32(0))}), "limit", "between 1 and 1000"},
			{"limit 1", list(&filter{Limit: ptr(uint32(1))}), "", ""},
			{"limit 1000", list(&filter{Limit: ptr(uint32(1000))}), "", ""},
			{"limit 1001", list(&filter{Limit: ptr(uint32(1001))}), "limit", "between 1 and 1000"},
			{"the largest limit", list(&filter{Limit: ptr(uint32(math.MaxUint32))}), "limit", "1000"},
			{"the largest offset", list(&filter{Offset: 1 << 20}), "", ""},
			{"a larger offset", list(&filter{Offset: 1<<20 + 1}), "offset", "at most 1048576"},
			{"status 8", list(&filter{Status: []models.Status{8}}), "status", "unknown status 8"},
			{"status -1", list(&filter{Status: []models.Status{-1}}), "status", "-1"},
			{"status 256", list(&filter{Status: []models.Status{256}}), "status", "unknown status 256"},
			{"a known status and another", list(&filter{Status: []models.Status{active, 9}}), "status", "unknown status 9"},
			{"no status", list(&filter{Status: []models.Status{0}}), "status", "unknown status 0"},
			{"order 2", list(&filter{Order: 2}), "order", "unknown order 2"},
			{"long prefix", list(&filter{Prefix: strings.Repeat("x", 1025)}), "prefix", "at most 1024"},
			{"prefix with NUL", list(&filter{Prefix: "a\x00"}), "prefix", "NUL"},
			{"page of the oldest first", list(&filter{Order: models.Order_ORDER_NEWEST, PageToken: "MSBh"}), "page_token", "another order"},
			{"status 258", list(&filter{Status: []models.Status{258}}), "status", "unknown status 258"},
			{"mode 2", list(&filter{Mode: ptr(models.Mode(2))}), "mode", "unknown mode 2"},
			{"a page token that is none", list(&filter{PageToken: "x"}), "page_token", "invalid page token"},
			{"a page token without an id", list(&filter{PageToken: "MTIz"}), "page_token", "invalid page token"},
			{"a page token that is not base64", list(&filter{PageToken: "!"}), "page_token", "invalid page token"},
			{"a page token and an offset", list(&filter{PageToken: "MSBh", Offset: 1}), "offset", "page_token"},
			{"a time out of range", list(&filter{MinimumCreated: &timestamppb.Timestamp{Seconds: math.MaxInt64}}), "minimum_created", "invalid time"},
			{"negative nanoseconds", list(&filter{MaximumCreated: &timestamppb.Timestamp{Nanos: -1}}), "maximum_created", "invalid time"},
			{"the last time", list(&filter{MaximumCreated: &timestamppb.Timestamp{Seconds: 253402300799}}), "", ""},
		})
	for field, set := range map[string]func(*filter, *float64){
		"minimum_active_duration":  func(f *filter, v *float64) { f.MinimumActiveDuration = v },
		"maximum_active_duration":  func(f *filter, v *float64) { f.MaximumActiveDuration = v },
		"minimum_waiting_duration": func(f *filter, v *float64) { f.MinimumWaitingDuration = v },
		"maximum_waiting_duration": func(f *filter, v *float64) { f.MaximumWaitingDuration = v },
		"minimum_ttl":              func(f *filter, v *float64) { f.MinimumTtl = v },
		"maximum_ttl":              func(f *filter, v *float64) { f.MaximumTtl = v },
	} {
		for v, good := range map[float64]bool{
			0: true, -years: true, years: true, -years - 1: false, years + 1: false, math.NaN(): false, math.Inf(1): false, math.Inf(-1): false,
		} {
			var f filter
			set(&f, &v)
			l := limit{name: fmt.Sprint(field, " ", v), call: list(&f)}
			if !good {
				l.wrong, l.says = field, "between -3155760000 and 3155760000"
			}
			limits = append(limits, l)
		}
	}
	return limits
}

// TestLimits: a request at a limit is served; a request beyond it is refused with the name of the field and the limit,
// and changes nothing.
func TestLimits(t *testing.T) {
	for name, limits := range map[string][]limit{
		"lock": lockLimits(), "create": createLimits(), "update": updateLimits(), "list": listLimits(),
		"end": endLimits(), "queue": queueLimits(),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				s.create(t, "kept", "kept", 60)
				s.create(t, "ended", "ended", 60)
				for _, l := range limits {
					before := s.state(t)
					err := l.call(t.Context(), s)
					if l.wrong == "" {
						if code := status.Code(err); code != codes.OK && code != codes.NotFound {
							t.Errorf("%s: %v", l.name, err)
						}
						continue
					}
					invalid(t, err, l.wrong)
					if !strings.Contains(status.Convert(err).Message(), l.says) {
						t.Errorf("%s: the message %q lacks %q", l.name, status.Convert(err).Message(), l.says)
					}
					if s.state(t) != before {
						t.Errorf("%s: it was refused and left something behind", l.name)
					}
				}
			})
		})
	}
}

// state returns every claim with its version.
func (s *server) state(t *testing.T) (text string) {
	t.Helper()
	for _, c := range s.list(t, &models.ListClaimsRequest{Limit: ptr(uint32(1000))}).GetClaims() {
		text += fmt.Sprint(c.GetId(), c.GetVersion(), " ")
	}
	return text
}

// TestLockTTL: an invalid ttl_in_seconds has its own error.
func TestLockTTL(t *testing.T) {
	s := start(t)
	for ttl, good := range map[int64]bool{
		1: true, years: true, 0: false, -1: false, years + 1: false, math.MaxInt64: false, math.MinInt64: false,
	} {
		_, err := s.Lock(t.Context(), &models.LockRequest{Resource: resource(fmt.Sprint("k", ttl), "o"), TtlInSeconds: ttl})
		if good {
			must(t, err)
			continue
		}
		isError(t, err, models.ErrInvalidTTL, "INVALID_TTL")
	}
	if claims := s.list(t, &models.ListClaimsRequest{Resource: ptr(fmt.Sprint("k", int64(years)))}).GetClaims(); claims[0].GetTtl() < years-60 {
		t.Errorf("a hundred years became %v seconds", claims[0].GetTtl())
	}
}

// TestEverythingWrong: all faults are reported at once.
func TestEverythingWrong(t *testing.T) {
	s := start(t)
	_, err := s.CreateClaim(t.Context(), &models.CreateClaimRequest{
		Owner: "\x00", Mode: 9, UserData: ptr("x"), Value: strings.Repeat("v", maxData+1), TypeCode: 9, Id: "/",
	})
	invalid(t, err, "mode", "type_code", "resource", "owner", "value", "user_data", "ttl", "id")
	_, err = s.Lock(t.Context(), &models.LockRequest{
		Resource: &models.Resource{Owner: "\x00", Value: strings.Repeat("v", maxData+1)}, TtlInSeconds: 1, Token: ptr(uint64(0)),
	})
	invalid(t, err, "resource.key", "resource.owner", "resource.value", "token")
}

// invalid fails the test unless err names exactly these fields.
func invalid(t testing.TB, err error, fields ...string) {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want fields %q to be invalid", err, fields)
		return
	}
	wantReason(t, err, "INVALID_FIELD")
	var named []string
	for _, v := range detail[*errdetails.BadRequest](err).GetFieldViolations() {
		named = append(named, v.GetField())
		if !strings.Contains(err.Error(), v.GetField()+": "+v.GetDescription()) {
			t.Errorf("the message %q lacks %s: %s", err, v.GetField(), v.GetDescription())
		}
	}
	if !slices.Equal(named, fields) {
		t.Errorf("fields %q, want %q (%v)", named, fields, err)
	}
}

// rawCodec sends and receives encoded messages.
type rawCodec struct{}

func (rawCodec) Name() string                        { return "proto" }
func (rawCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = slices.Clone(data)
	return nil
}

// raw sends bytes as the request of a method.
func (s *server) raw(ctx context.Context, method string, message []byte) error {
	var answer []byte
	return s.conn.Invoke(ctx, method, message, &answer, grpc.ForceCodec(rawCodec{}))
}

func text(field protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value)
}

// TestRaw sends requests that no generated client sends.
func TestRaw(t *testing.T) {
	s := start(t)
	const bad = "a\xff"
	ttl := protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 60)
	for _, c := range []struct {
		name, method string
		message      []byte
		field        string
	}{
		{"key to lock", models.Locket_Lock_FullMethodName, append(text(1, string(append(text(1, bad), text(2, "o")...))), ttl...), "resource.key"},
		{"owner to lock", models.Locket_Lock_FullMethodName, append(text(1, string(append(text(1, "k"), text(2, bad)...))), ttl...), "resource.owner"},
		{"key to fetch", models.Locket_Fetch_FullMethodName, text(1, bad), "key"},
		{"resource to claim", models.Locket_CreateClaim_FullMethodName, text(1, bad), "resource"},
		{"user data", models.Locket_CreateClaim_FullMethodName, text(5, bad), "user_data"},
		{"reason to end", models.Locket_EndClaim_FullMethodName, append(text(1, "a"), text(2, bad)...), "reason"},
		{"id to end", models.Locket_EndClaim_FullMethodName, text(1, bad), "id"},
		{"resource of a queue", models.Locket_GetQueue_FullMethodName, text(1, bad), "resource"},
		{"id to get", models.Locket_GetClaim_FullMethodName, text(1, bad), "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := s.raw(t.Context(), c.method, c.message)
			invalid(t, err, c.field)
			refused(t, err, codes.InvalidArgument, c.field+": is not valid UTF-8")
		})
	}
	t.Run("no protobuf", func(t *testing.T) {
		for _, method := range methods {
			err := s.raw(t.Context(), method, []byte{0xff, 0xff, 0xff})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
	t.Run("a token past 64 bits", func(t *testing.T) {
		token := append(protowire.AppendTag(nil, 3, protowire.VarintType), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"...)
		message := slices.Concat(text(1, string(append(text(1, "other"), text(2, "o")...))), ttl, token)
		if err := s.raw(t.Context(), models.Locket_Lock_FullMethodName, message); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
	})
	t.Run("unknown fields are skipped", func(t *testing.T) {
		message := slices.Concat(text(1, string(append(text(1, "k"), text(2, "o")...))), ttl, text(99, "new"))
		must(t, s.raw(t.Context(), models.Locket_Lock_FullMethodName, message))
	})
	if got := s.list(t, &models.ListClaimsRequest{}).GetClaims(); len(got) != 1 {
		t.Errorf("claims %v", got)
	}
}

// TestEmpty sends an empty message to every method.
func TestEmpty(t *testing.T) {
	s := start(t)
	want := map[string]codes.Code{
		models.Locket_FetchAll_FullMethodName:      codes.NotFound,
		models.Locket_GetClaim_FullMethodName:      codes.NotFound,
		models.Locket_UpdateClaim_FullMethodName:   codes.NotFound,
		models.Locket_AwaitClaim_FullMethodName:    codes.NotFound,
		models.Locket_EndClaim_FullMethodName:      codes.NotFound,
		models.Locket_ListClaims_FullMethodName:    codes.OK,
		models.Locket_ListSessions_FullMethodName:  codes.OK,
		models.Locket_ListResources_FullMethodName: codes.OK,
		models.Locket_GetSession_FullMethodName:    codes.NotFound,
		models.Locket_EndSession_FullMethodName:    codes.NotFound,
		models.Locket_ResetSessions_FullMethodName: codes.OK,
	}
	service := models.File_models_locket_proto.Services().ByName("Locket")
	for _, method := range methods {
		code, other := want[method]
		switch described := service.Methods().ByName(protoreflect.Name(path.Base(method))); {
		case other:
		case described.Input().Fields().Len() == 0:
			code = codes.OK
		default:
			code = codes.InvalidArgument
		}
		if err := s.raw(t.Context(), method, nil); status.Code(err) != code {
			t.Errorf("%s: %v, want %s", method, err, code)
		}
	}
}

// methods are all methods of the service.
var methods = func() (names []string) {
	for _, method := range models.Locket_ServiceDesc.Methods {
		names = append(names, "/models.Locket/"+method.MethodName)
	}
	return names
}()
