package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// every has each command, with something in each of its fields.
func every() []claim.Command {
	commands := []any{
		claim.Create{},
		claim.Acquire{},
		claim.Release{},
		claim.Renew{},
		claim.Activate{},
		claim.SetStatus{},
		claim.End{},
		claim.EndDeadlock{},
		claim.KeepWaiting{},
		claim.Expire{},
		claim.Attach{},
		claim.Detach{},
		claim.EndSession{},
		claim.IfVersion{},
	}
	list := make([]claim.Command, len(commands))
	for i, cmd := range commands {
		list[i] = filled(cmd).(claim.Command)
	}
	return list
}

// filled returns a value with something in each of its fields.
func filled(v any) any {
	p := reflect.New(reflect.TypeOf(v))
	fill(p.Elem())
	return p.Elem().Interface()
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1234567)
	case reflect.Uint64:
		v.SetUint(1 << 40)
	case reflect.Uint32:
		v.SetUint(1 << 20)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(claim.Renew{ID: "then", TTL: time.Minute}))
	default:
		panic(fmt.Sprintf("what is a %s?", v.Type()))
	}
}

// rules are such as a file may have: about each kind of identities and of resources.
func rules() *access.Rules {
	text := func(s string) *string { return &s }
	return access.NewRules([]*access.Rule{
		{Identity: text("i"), May: access.Hold | access.Read, Resource: text("r"), Line: 3},
		{IdentityPrefix: text("i/"), MayNot: access.Revoke, ResourcePrefix: text("")},
		{Group: text("g"), May: access.All, ResourcePrefix: text("team/")},
		{Everybody: true, May: access.Read, Resource: text("")},
	})
}

// batch has each command, by callers with and without the optional fields.
func batch() db.Batch {
	var b db.Batch
	both := rules()
	for i, cmd := range every() {
		r := claim.Request{Command: cmd}
		switch i % 4 {
		case 0:
			r.Caller = access.Caller{Identity: filled(access.Identity{}).(access.Identity), Rules: both}
		case 1:
			r.Caller = access.Caller{Identity: access.Identity{Name: "i"}, Rules: rules()}
		case 2:
			r.Caller = access.Caller{Identity: access.Identity{Name: "j"}, Rules: both}
		}
		b.Requests = append(b.Requests, r)
	}
	return b
}

func TestBatch(t *testing.T) {
	from, want := record.Origin{Node: 1<<63 + 5, Seq: 7<<40 + 1}, batch()
	sent, err := record.WriteBatch(from, want)
	if err != nil {
		t.Fatal(err)
	}
	gotFrom, got, err := record.ReadBatch(sent)
	if err != nil || gotFrom != from {
		t.Fatalf("from %+v (%v)", gotFrom, err)
	}
	for i := range want.Requests {
		if !reflect.DeepEqual(got.Requests[i], want.Requests[i]) {
			t.Errorf("request %d: got %+v, want %+v", i, got.Requests[i], want.Requests[i])
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Requests[0].Caller.Rules != got.Requests[4].Caller.Rules {
		t.Error("rules to which two callers pointed are there twice")
	}
	want.Requests[1].Caller.Quota = &access.Quota{Held: 3}
	if sent, err = record.WriteBatch(from, want); err != nil {
		t.Fatal(err)
	}
	if _, got, err := record.ReadBatch(sent); err != nil || got.Requests[1].Caller.Quota != nil {
		t.Errorf("a quota is sent: %+v (%v)", got.Requests[1].Caller.Quota, err)
	}
}

// TestEveryCommand, and every error: what package claim has is sent. A name that is not found here is of something new.
func TestEveryCommand(t *testing.T) {
	have := map[string]bool{}
	for _, cmd := range every() {
		have[reflect.TypeOf(cmd).Name()] = true
	}
	for _, name := range declared(t, `(?m)^func \(cmd (\w+)\) Targets\(\)`) {
		if !have[name] {
			t.Errorf("%s is not sent", name)
		}
	}
	have = map[string]bool{}
	for _, err := range answerErrors() {
		have[reflect.TypeOf(err).Elem().Name()] = true
	}
	for _, name := range declared(t, `(?m)^type (\w+Error) struct`) {
		if !have[name] {
			t.Errorf("a %s is not sent", name)
		}
	}
	if sentinels := declared(t, `(?m)^\t(Err\w+) += errors.New`); len(sentinels) != len(sentinelErrors) {
		t.Errorf("package claim has %q, and %d are sent", sentinels, len(sentinelErrors))
	}
}

// declared returns the names that the sources of package claim declare.
func declared(t *testing.T, pattern string) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../../internal/rules/claim/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, found := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	if len(names) == 0 {
		t.Fatalf("nothing is found by %s", pattern)
	}
	return names
}

var sentinelErrors = []error{
	claim.ErrNotFound, claim.ErrIDTaken, claim.ErrQuarantine, claim.ErrQueueFull, claim.ErrContention, claim.ErrUnfinished, claim.ErrSessionEnded,
	claim.ErrSessionSecret, claim.ErrNotAttached, claim.ErrSessionFull, claim.ErrSessionClaim,
}

func answerErrors() []error {
	return append([]error{
		new(filled(claim.CollisionError{}).(claim.CollisionError)),
		new(filled(claim.VersionError{}).(claim.VersionError)), new(filled(claim.TransitionError{}).(claim.TransitionError)),
		new(filled(access.DeniedError{}).(access.DeniedError)), new(filled(claim.AheadError{}).(claim.AheadError)),
		&claim.CollisionError{},
	}, sentinelErrors...)
}

// outcome has all that an outcome may have.
func outcome() db.Outcome {
	o := db.Outcome{
		Now: claim.Instant{Wall: at, Lease: at - 3e6, Skew: time.Second, Quarantine: at + 7}, Committed: true, Unsettled: []string{"r", "q"},
		Answers: []claim.Answer{{}, {Claim: granted}, {Claim: made, Position: 1}, {Claim: new(filled(claim.Claim{}).(claim.Claim))}},
		Changes: []claim.Transition{step(nil, made), step(made, granted), step(granted, renewed), step(renewed, ended)},
	}
	for _, err := range answerErrors() {
		o.Answers = append(o.Answers, claim.Answer{Err: err})
	}
	return o
}

func TestOutcome(t *testing.T) {
	for name, want := range map[string]db.Outcome{"all": outcome(), "nothing": {}} {
		sent, err := record.WriteOutcome(want, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.ReadOutcome(sent)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v (%v)", name, got, want, err)
		}
	}
	sent, err := record.WriteOutcome(outcome(), errors.New("why"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := record.ReadOutcome(sent); err == nil || err.Error() != "why" || !reflect.DeepEqual(got, db.Outcome{}) {
		t.Errorf("a failure: %+v (%v)", got, err)
	}
	if _, err := record.WriteOutcome(db.Outcome{Answers: []claim.Answer{{Err: errors.New("another")}}}, nil); !errors.Is(err, record.ErrNotSent) {
		t.Errorf("an unknown error: %v", err)
	}
}

// TestNotSent: what no node could read is not sent.
func TestNotSent(t *testing.T) {
	for name, cmd := range map[string]claim.Command{
		"nothing": nil, "a condition of a condition": claim.IfVersion{Then: claim.IfVersion{Then: claim.Renew{}}},
	} {
		if _, err := record.WriteBatch(record.Origin{}, db.Batch{Requests: []claim.Request{{Command: cmd}}}); !errors.Is(err, record.ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sent are a batch and an outcome as they travel.
func sent(t testing.TB) (sentBatch, sentOutcome []byte) {
	t.Helper()
	sentBatch, err := record.WriteBatch(record.Origin{Node: 5, Seq: 1<<40 + 1}, batch())
	if err != nil {
		t.Fatal(err)
	}
	sentOutcome, err = record.WriteOutcome(outcome(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sentBatch, sentOutcome
}

// FuzzSent: data that is no batch, or no outcome, is an error, and never a panic; valid data is written again
// unchanged.
func FuzzSent(f *testing.F) {
	sentBatch, sentOutcome := sent(f)
	for _, whole := range [][]byte{sentBatch, sentOutcome} {
		f.Add(whole)
		for n := range len(whole) / 50 {
			f.Add(whole[:n*50])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if from, b, err := record.ReadBatch(data); err == nil {
			once, err := record.WriteBatch(from, b)
			if err != nil {
				t.Fatal(err)
			}
			if from, b, err = record.ReadBatch(once); err != nil {
				t.Fatal(err)
			}
			if twice, err := record.WriteBatch(from, b); err != nil || !bytes.Equal(twice, once) {
				t.Errorf("%x is written as %x (%v)", once, twice, err)
			}
		} else if !errors.Is(err, record.ErrFormat) {
			t.Error(err)
		}
		if o, err := record.ReadOutcome(data); err == nil {
			if _, err := record.WriteOutcome(o, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCutOff: data that is cut off, or has trailing bytes, is no batch, and no outcome.
func TestCutOff(t *testing.T) {
	sentBatch, sentOutcome := sent(t)
	read := func(data []byte) error { _, _, err := record.ReadBatch(data); return err }
	readOutcome := func(data []byte) error { _, err := record.ReadOutcome(data); return err }
	for _, c := range []struct {
		whole []byte
		read  func([]byte) error
	}{{sentBatch, read}, {sentOutcome, readOutcome}} {
		for n := range c.whole {
			if err := c.read(c.whole[:n]); !errors.Is(err, record.ErrFormat) {
				t.Fatalf("cut at %d: %v", n, err)
			}
		}
		if err := c.read(append(bytes.Clone(c.whole), 0)); !errors.Is(err, record.ErrFormat) {
			t.Errorf("with one byte more: %v", err)
		}
	}
}

// TestOtherVersions: a record, a batch or an outcome of another version is refused. The error names both versions.
func TestOtherVersions(t *testing.T) {
	sentBatch, sentOutcome := sent(t)
	written, _ := record.Append(nil, 0, &record.Record{})
	for name, what := range map[string]struct {
		data []byte
		read func([]byte) error
	}{
		"batch":   {sentBatch, func(data []byte) error { _, _, err := record.ReadBatch(data); return err }},
		"outcome": {sentOutcome, func(data []byte) error { _, err := record.ReadOutcome(data); return err }},
		"record":  {written, func(data []byte) error { _, err := record.Read(data); return err }},
	} {
		for _, version := range []byte{0, 2, 255} {
			other := bytes.Clone(what.data)
			other[0] = version
			err := what.read(other)
			if want := fmt.Sprintf("it is of version %d, and this locket reads 1", version); !errors.Is(err, record.ErrFormat) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
