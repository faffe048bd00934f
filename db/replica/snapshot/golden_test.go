package snapshot_test

import (
	"errors"
	"testing"
	"time"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestGolden: a snapshot that this version has written is read, and written in the same way.
func TestGolden(t *testing.T) {
	const index, at = 1 << 20, 1_790_000_000_000_000
	meta := snapshot.Meta{Log: 1 << 40, Index: index, Sum: 7, History: index - 3, Missing: 2}
	d := disktest.New()
	w, err := snapshot.NewWriter(d, meta, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		w.Claim(&claim.Claim{ID: "a", Resource: "r", Owner: "o", Status: claim.Active, TTL: time.Hour, Token: at, Version: at + 1, Deadline: at + 2, Created: at - 3}),
		w.Claim(&claim.Claim{ID: "b", Resource: "r", Session: "s", Status: claim.Waiting, Units: claim.Shared, UserData: []byte("{}"), Enqueued: at, Version: at, Created: at}),
		w.Session(&claim.Session{ID: "s", Secret: []byte("secret"), TTL: time.Minute, Server: "here", Attached: at}),
		w.Server(record.Server{Name: "here", Seen: at}),
		w.Row(record.Row{Name: "r", Version: at + 1}),
		w.End(at+9, at+8),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := snapshot.Name(index)
	golden.Check(t, golden.Format{Name: "snapshot-1", Written: d.Content(file), Again: func(data []byte) ([]byte, error) {
		from, to := disktest.New(), disktest.New()
		f, err := from.Create(file)
		if err == nil {
			_, err = f.WriteAt(data, 0)
		}
		if err != nil {
			return nil, err
		}
		var blocks []*record.Decoded
		read, err := snapshot.Read(from, index, func(d *record.Decoded) error {
			blocks = append(blocks, d)
			return nil
		})
		if err != nil {
			return nil, err
		}
		w, err := snapshot.NewWriter(to, read, blocks[0].Lease)
		for _, d := range blocks {
			for i := range d.Claims {
				err = errors.Join(err, w.Claim(&d.Claims[i].Claim))
			}
			for _, s := range d.Sessions {
				err = errors.Join(err, w.Session(s.Put))
			}
			for _, s := range d.Servers {
				err = errors.Join(err, w.Server(s))
			}
			for _, r := range d.Rows {
				err = errors.Join(err, w.Row(r))
			}
		}
		last := blocks[len(blocks)-1]
		err = errors.Join(err, w.End(last.Floor, last.Quarantine))
		return to.Content(file), err
	}})
}
