package db

import (
	"iter"
	"slices"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/internal/rules/claim"
)

// MaxFeedValue is the maximum length in bytes of a claim's value in the feed.
const MaxFeedValue = claim.MaxBrief

// recordVersion is the first byte of a record.
const recordVersion = 1

// recordBytes is the usual maximum size of a transition in a record.
const recordBytes = 96

// AppendRecord appends the record of a transaction in the feed to a buffer: its time, and its
// transitions except renewals. A claim that is created and granted at once is one
// transition.
//
// A record is the version, the time, and the transitions. A resource that is the same as before is empty.
func AppendRecord(buf []byte, at claim.Time, transitions []claim.Transition) []byte {
	c := codec.Writer(slices.Grow(buf, recordBytes*(len(transitions)+1)))
	c.Format(recordVersion)
	codec.Signed(&c, &at)
	c.Near(at, at)
	last := ""
	for i, t := range transitions {
		if i+1 < len(transitions) && grantedAtOnce(t, transitions[i+1]) {
			continue
		}
		if i > 0 && grantedAtOnce(transitions[i-1], t) {
			t.Before = nil
		}
		if onlyRenews(t) {
			continue
		}
		e := recordedOf(t)
		if e.after.Resource == last {
			e.after.Resource = ""
		} else {
			last = e.after.Resource
		}
		e.code(&c)
	}
	return c.Buffer()
}

func recordedOf(t claim.Transition) recorded {
	e := recorded{after: *t.After}
	if t.Before != nil {
		e.from, e.version, e.kind = t.Before.Status, t.Before.Version, t.Before.Type
	}
	e.after.UserData = nil
	if len(e.after.Value) > MaxFeedValue {
		e.after.Value = ""
	}
	return e
}

// RecordBytes is the maximum size in bytes of a record without its last transition.
const RecordBytes = 128 << 10

// Records returns the records of a transaction in the feed: one, or several if its transitions are many or large.
func Records(at claim.Time, transitions []claim.Transition) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for first := true; first || len(transitions) > 0; first = false {
			n := fitting(transitions)
			if !yield(AppendRecord(nil, at, transitions[:n])) {
				return
			}
			transitions = transitions[n:]
		}
	}
}

// fitting returns how many of the transitions fit into one record. The two transitions of a claim that is created
// and granted at once are kept together.
func fitting(transitions []claim.Transition) (n int) {
	for bytes := 0; n < len(transitions) && bytes < RecordBytes; n++ {
		c := transitions[n].After
		bytes += recordBytes + len(c.ID) + len(c.Resource) + len(c.Owner) + len(c.Session) + len(c.Reason) + len(c.Identity) + len(c.EndedBy)
		if len(c.Value) <= MaxFeedValue {
			bytes += len(c.Value)
		}
	}
	if 0 < n && n < len(transitions) && grantedAtOnce(transitions[n-1], transitions[n]) {
		n++
	}
	return n
}

// grantedAtOnce reports whether two successive transitions create a claim and grant it.
func grantedAtOnce(made, granted claim.Transition) bool {
	return made.Before == nil && granted.Before == made.After && granted.After.Status == claim.Active
}

func onlyRenews(t claim.Transition) bool {
	return t.Before != nil && t.Before.Status == t.After.Status && !t.SetsValue() && t.Before.Type == t.After.Type
}

// ReadRecord decodes the output of AppendRecord.
func ReadRecord(record []byte) (at claim.Time, transitions []claim.Transition, err error) {
	c := codec.Reader(record)
	c.Format(recordVersion)
	codec.Signed(&c, &at)
	c.Near(at, at)
	for last := ""; c.More(); {
		var e recorded
		if e.code(&c); !e.after.Status.Valid() {
			c.Fail("status")
		}
		if e.after.Resource == "" {
			e.after.Resource = last
		}
		last = e.after.Resource
		transitions = append(transitions, e.transition())
	}
	if c.Err() != nil {
		return 0, nil, c.Err()
	}
	return at, transitions, nil
}

// recorded is a transition in a record.
type recorded struct {
	// from, version and kind are of the claim before the change, 0 for none.
	from    claim.Status
	version uint64
	kind    claim.Type
	after   claim.Claim
}

// otherType is added to the status before a change if the claim had another type. Then the type follows the version.
const otherType claim.Status = 1 << 7

func (e *recorded) code(c *codec.Coder) {
	from := e.from
	if from != 0 && e.kind != e.after.Type {
		from |= otherType
	}
	codec.Small(c, &from, otherType|claim.Revoked)
	if e.from = from &^ otherType; e.from > claim.Revoked || from == otherType {
		c.Fail("status")
	}
	if e.from != 0 {
		c.Version(&e.version)
	}
	if from&otherType != 0 {
		codec.Small(c, &e.kind, ^claim.Type(0))
	}
	c.Claim(&e.after)
	if from&otherType == 0 {
		e.kind = e.after.Type
	}
}

func (e *recorded) transition() claim.Transition {
	t := claim.Transition{After: &e.after}
	if e.from != 0 {
		t.Before = &claim.Claim{ID: e.after.ID, Resource: e.after.Resource, Type: e.kind, Status: e.from, Version: e.version}
	}
	return t
}
