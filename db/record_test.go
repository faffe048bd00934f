package db_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

const recordTime claim.Time = 1_790_000_000_000_000

// recordClaim is a claim with a value in every field that a record has.
func recordClaim(id string, status claim.Status) *claim.Claim {
	return &claim.Claim{
		ID: id, Resource: "r", Owner: "o", Units: claim.Shared, Type: claim.Presence, TTL: time.Minute, WaitTTL: 3 * time.Second,
		Session: "s", Value: "v", Status: status, Enqueued: uint64(recordTime) - 7, Token: uint64(recordTime), Version: uint64(recordTime) + 9,
		Deadline: recordTime + 60e6, Created: recordTime - 5, Activated: recordTime, Finished: recordTime + 1, Reason: "why",
		Identity: "i", EndedBy: "e",
	}
}

// readRecord writes a record and reads it.
func readRecord(t rapid.TB, transitions ...claim.Transition) []claim.Transition {
	t.Helper()
	at, got, err := db.ReadRecord(db.AppendRecord(nil, recordTime, transitions))
	if err != nil || at != recordTime {
		t.Fatalf("read at %d: %v", at, err)
	}
	return got
}

// brief returns the parts kept of a claim before a change.
func brief(c *claim.Claim) *claim.Claim {
	return &claim.Claim{ID: c.ID, Resource: c.Resource, Type: c.Type, Status: c.Status, Version: c.Version}
}

func TestRecord(t *testing.T) {
	with := func(status claim.Status, change func(*claim.Claim)) *claim.Claim {
		c := recordClaim("a", status)
		change(c)
		return c
	}
	made, held, released := recordClaim("a", claim.Waiting), recordClaim("a", claim.Active), recordClaim("a", claim.Released)
	withdrawn := recordClaim("a", claim.Withdrawn)
	renewed := with(claim.Active, func(c *claim.Claim) { c.Deadline, c.TTL = 1, time.Hour })
	changed := with(claim.Active, func(c *claim.Claim) { c.Value = "other" })
	lock := with(claim.Active, func(c *claim.Claim) { c.Type = claim.Lock })
	long := with(claim.Active, func(c *claim.Claim) { c.Value = strings.Repeat("v", db.MaxFeedValue) })
	longer := with(claim.Active, func(c *claim.Claim) { c.Value = strings.Repeat("v", db.MaxFeedValue+1) })
	none := with(claim.Active, func(c *claim.Claim) { c.Value = "" })
	forever := with(claim.Active, func(c *claim.Claim) { c.Deadline = 1<<63 - 1 })
	withData := with(claim.Active, func(c *claim.Claim) { c.UserData = []byte("{}") })
	type list []claim.Transition
	step := func(before, after *claim.Claim) claim.Transition {
		return claim.Transition{Before: before, After: after}
	}
	for name, test := range map[string]struct{ in, want list }{
		"none":                       {},
		"made":                       {list{step(nil, made)}, list{step(nil, made)}},
		"granted":                    {list{step(made, held)}, list{step(brief(made), held)}},
		"made and granted":           {list{step(nil, made), step(made, held)}, list{step(nil, held)}},
		"made, granted and released": {list{step(nil, made), step(made, held), step(held, released)}, list{step(nil, held), step(brief(held), released)}},
		"made and withdrawn":         {list{step(nil, made), step(made, withdrawn)}, list{step(nil, made), step(brief(made), withdrawn)}},
		"renewed":                    {list{step(held, renewed)}, nil},
		"value":                      {list{step(held, changed)}, list{step(brief(held), changed)}},
		"type":                       {list{step(held, lock)}, list{step(brief(held), lock)}},
		"type, after another change": {list{step(made, held), step(held, lock)}, list{step(brief(made), held), step(brief(held), lock)}},
		"type and end":               {list{step(lock, released)}, list{step(brief(lock), released)}},
		"the longest value":          {list{step(made, long)}, list{step(brief(made), long)}},
		"a longer value":             {list{step(made, longer)}, list{step(brief(made), none)}},
		"no deadline":                {list{step(made, forever)}, list{step(brief(made), forever)}},
		"user data":                  {list{step(made, withData)}, list{step(brief(made), held)}},
		"two":                        {list{step(held, released), step(nil, recordClaim("b", claim.Waiting))}, list{step(brief(held), released), step(nil, recordClaim("b", claim.Waiting))}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readRecord(t, test.in...); !reflect.DeepEqual(got, []claim.Transition(test.want)) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestRecordOfAnything writes any claims and reads them.
func TestRecordOfAnything(t *testing.T) {
	claims := rapid.Custom(func(t *rapid.T) *claim.Claim {
		moment := func(name string) claim.Time { return claim.Time(rapid.Int64Min(0).Draw(t, name)) }
		version := func(name string) uint64 { return rapid.Uint64Range(0, 1<<63-1).Draw(t, name) }
		text := func(name string) string { return rapid.StringN(0, 20, 100).Draw(t, name) }
		duration := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, 100*365*24*3600*1e6).Draw(t, name)) * time.Microsecond
		}
		return &claim.Claim{
			ID: text("id"), Resource: rapid.StringN(1, 20, 100).Draw(t, "resource"), Owner: text("owner"), Session: text("session"),
			Units: rapid.SampledFrom([]claim.Units{claim.Exclusive, claim.Shared, {Take: 3, Of: 7}}).Draw(t, "units"), Type: claim.Type(rapid.Uint8Max(2).Draw(t, "type")),
			Status: claim.Status(rapid.Uint8Range(1, 7).Draw(t, "status")), Reason: text("reason"), Value: text("value"), Identity: text("identity"), EndedBy: text("ended by"),
			TTL: duration("ttl"), WaitTTL: duration("wait ttl"),
			Enqueued: version("enqueued"), Token: version("token"), Version: version("version"),
			Deadline: moment("deadline"), Created: moment("created"), Activated: moment("activated"), Finished: moment("finished"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var in, want []claim.Transition
		for _, c := range rapid.SliceOfN(claims, 0, 4).Draw(t, "claims") {
			in, want = append(in, claim.Transition{After: c}), append(want, claim.Transition{After: c})
		}
		if got := readRecord(t, in...); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// FuzzRecord reads anything: what it can read, it writes again and reads the same.
func FuzzRecord(f *testing.F) {
	made, held := recordClaim("a", claim.Waiting), recordClaim("a", claim.Active)
	f.Add(db.AppendRecord(nil, recordTime, []claim.Transition{{After: made}, {Before: held, After: recordClaim("a", claim.Released)}}))
	f.Add([]byte{1, 0, 0})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, record []byte) {
		at, transitions, err := db.ReadRecord(record)
		if err != nil {
			return
		}
		for _, t := range transitions {
			if t.Before != nil && t.Before.Status == t.After.Status || len(t.After.Value) > db.MaxFeedValue || t.After.UserData != nil {
				return // a writer leaves this out
			}
		}
		again, changes, err := db.ReadRecord(db.AppendRecord(nil, at, transitions))
		if err != nil || again != at || !reflect.DeepEqual(changes, transitions) {
			t.Errorf("%x: %v became %v (%v)", record, transitions, changes, err)
		}
	})
}

func TestBadRecords(t *testing.T) {
	record := db.AppendRecord(nil, recordTime, []claim.Transition{{After: recordClaim("a", claim.Active)}})
	if n := len(record); n > 70 {
		t.Errorf("a record of one claim has %d bytes", n)
	}
	for name, bad := range map[string][]byte{
		"empty":           nil,
		"another version": append([]byte{2}, record[1:]...),
		"cut off":         record[:len(record)-1],
		"too long":        append(bytes.Clone(record), 1),
		"no status":       append(bytes.Clone(record), make([]byte, 30)...),
		"a long text":     append(bytes.Clone(record), 1<<3, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
	} {
		if _, got, err := db.ReadRecord(bad); err == nil {
			t.Errorf("%s: read %v", name, got)
		}
	}
}
