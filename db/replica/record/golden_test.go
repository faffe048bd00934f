package record_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestGolden: what this version has written is read, and written in the same way.
func TestGolden(t *testing.T) {
	written, _ := record.Append(nil, 7, example())
	sentBatch, sentOutcome := sent(t)
	sentJob, err1 := record.WriteJob(job())
	sentDone, err2 := record.WriteDone(done())
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	golden.Check(
		t,
		golden.Format{Name: "record-1", Written: written, Again: func(data []byte) ([]byte, error) {
			d, err := record.Read(data)
			if err != nil {
				return nil, err
			}
			again, _ := record.Append(nil, 7, recordOf(d))
			return again, nil
		}},
		golden.Format{Name: "batch-1", Written: sentBatch, Again: func(data []byte) ([]byte, error) {
			from, b, err := record.ReadBatch(data)
			if err != nil {
				return nil, err
			}
			return record.WriteBatch(from, b)
		}},
		golden.Format{Name: "outcome-1", Written: sentOutcome, Again: func(data []byte) ([]byte, error) {
			o, err := record.ReadOutcome(data)
			if err != nil {
				return nil, err
			}
			return record.WriteOutcome(o, nil)
		}},
		golden.Format{Name: "job-1", Written: sentJob, Again: func(data []byte) ([]byte, error) {
			j, is := record.ReadJob(data)
			if !is || !reflect.DeepEqual(&j, job()) {
				t.Errorf("the job is read as %+v", j)
			}
			return record.WriteJob(&j)
		}},
		golden.Format{Name: "done-1", Written: sentDone, Again: func(data []byte) ([]byte, error) {
			d, err := record.ReadDone(data)
			if err != nil || !reflect.DeepEqual(&d, done()) {
				t.Errorf("the outcome of a job is read as %+v", d)
			}
			return record.WriteDone(&d)
		}},
	)
}

// job has everything that a job may have.
func job() *record.Job {
	return &record.Job{
		Server: "here", Register: true, Beat: true, Detach: true, Silence: time.Minute,
		Prune: &record.Prune{Ended: true, After: "r", Before: at, Limit: 200},
		Read: &record.Query{ID: "a", Filter: db.Filter{
			Resource: new("r"), Owner: new("o"), Prefix: "p", Units: new(claim.Shared), Statuses: []claim.Status{claim.Released, claim.Revoked},
			MinActive: new(time.Second), MaxActive: new(time.Minute), MinWaiting: new(time.Duration(1)), MaxWaiting: new(time.Duration(2)), MinTTL: new(time.Duration(3)),
			MaxTTL: new(time.Duration(4)), MinCreated: new(at), MaxCreated: new(at + 1), Newest: true, After: &db.Cursor{Created: at, ID: "b"}, Limit: 10, Offset: 20, Bytes: 1 << 20,
		}},
	}
}

func done() *record.Done {
	return &record.Done{Now: claim.Instant{Wall: at, Lease: at - 1, Quarantine: at - 2}, Gone: true, Detached: 3, Deleted: 4, Next: "q", Claims: []claim.Claim{*ended}}
}

// recordOf returns a record that is written as a decoded one was.
func recordOf(d *record.Decoded) *record.Record {
	r := &record.Record{
		Header: d.Header, Servers: d.Servers, Rows: d.Rows, Floor: d.Floor, Quarantine: d.Quarantine, Batches: d.Batches, Cuts: d.Cuts, Sums: d.Sums, Format: d.Format,
	}
	known := make(map[string]*claim.Claim)
	for _, p := range d.Claims {
		var before *claim.Claim
		after := p.Claim
		if p.From != 0 {
			before = known[p.Claim.ID]
			after = *before
		}
		p.Apply(&after)
		known[after.ID] = &after
		r.Claims = append(r.Claims, claim.Transition{Before: before, After: &after})
	}
	for _, s := range d.Sessions {
		switch {
		case s.Ended:
			r.Sessions = append(r.Sessions, claim.SessionChange{Before: &claim.Session{ID: s.ID}})
		case s.Put != nil:
			r.Sessions = append(r.Sessions, claim.SessionChange{After: s.Put})
		default:
			r.Sessions = append(r.Sessions, claim.SessionChange{Before: &claim.Session{ID: s.ID}, After: &claim.Session{ID: s.ID, Version: s.Version, Attached: s.Attached}})
		}
	}
	return r
}
