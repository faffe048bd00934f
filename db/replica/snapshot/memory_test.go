package snapshot_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// claimsAndEnds is a log of so many new claims, and of the ends of as many older ones, in records of a hundred.
func claimsAndEnds(n int) (log [][]byte, bytes int) {
	const at claim.Time = 1_790_000_000_000_000_000
	sum := uint32(0)
	for i := 0; i < n; i += 100 {
		now := at + claim.Time(i)*1e6
		r := &record.Record{Header: record.Header{Wall: now, Lease: now}}
		for j := range claim.Time(100) {
			c := &claim.Claim{
				ID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", i+int(j)), Resource: fmt.Sprint("new/", i+int(j)), Owner: "an owner of a new claim", TTL: 30 * time.Second,
				UserData: []byte(`"what a user says of it"`), Status: claim.Active, Enqueued: uint64(now + j), Token: uint64(now + j), Version: uint64(now + j),
				Deadline: now + 30e9, Created: now, Activated: now,
			}
			r.Claims = append(r.Claims, claim.Transition{After: c})
			before := &claim.Claim{ID: fmt.Sprintf("%08x-0000-4000-8000-111111111111", i+int(j)), Resource: fmt.Sprint("old/", i+int(j)), Status: claim.Active, Version: 1}
			after := *before
			after.Status, after.Version, after.Finished, after.Reason = claim.Expired, uint64(now+j), now, "the TTL is over"
			r.Claims = append(r.Claims, claim.Transition{Before: before, After: &after})
		}
		var data []byte
		data, sum = record.Append(nil, sum, r)
		log, bytes = append(log, data), bytes+len(data)
	}
	return log, bytes
}

// TestWrittenAsItGoes: a large snapshot is synced while it is written. Otherwise all of it would be written at the end,
// and the log would wait for that.
func TestWrittenAsItGoes(t *testing.T) {
	d := disktest.New()
	writes, most := 0, 0 // since the last sync
	d.SetFault(func(operation string) error {
		switch operation {
		case "write new":
			writes++
			most = max(most, writes)
		case "sync new":
			writes = 0
		}
		return nil
	})
	w, err := snapshot.NewWriter(d, snapshot.Meta{Log: 1 << 40, Index: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	const claims = 40
	value := strings.Repeat("v", 1<<20)
	for n := range claims {
		if err := w.Claim(&claim.Claim{ID: fmt.Sprint(1000 + n), Resource: fmt.Sprint(n), Status: claim.Active, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(1, 0); err != nil {
		t.Fatal(err)
	}
	if most > claims/2 {
		t.Errorf("%d megabytes are written and not on the disk", most)
	}
	read := 0
	_, err = snapshot.Read(d, 2, func(block *record.Decoded) error { read += len(block.Claims); return nil })
	if err != nil || read != claims {
		t.Errorf("it has %d claims: %v", read, err)
	}
}

// TestMemoryOfTheLog: the merged changes since the last snapshot take little more memory than the log.
func TestMemoryOfTheLog(t *testing.T) {
	log, bytes := claimsAndEnds(50_000)
	entries := func(from, to uint64, yield func(data []byte) error) error {
		for _, data := range log[from-1 : to] {
			if err := yield(data); err != nil {
				return err
			}
		}
		return nil
	}
	inUse := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := inUse()
	view, err := snapshot.Since(nil, 0, uint64(len(log)), entries)
	if err != nil {
		t.Fatal(err)
	}
	took := inUse() - before
	runtime.KeepAlive(view)
	runtime.KeepAlive(log)
	if t.Logf("%d bytes for a log of %d", took, bytes); took > 3*bytes {
		t.Errorf("%d bytes for a log of %d", took, bytes)
	}
}
