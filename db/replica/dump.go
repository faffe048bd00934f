package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/replica/filelog"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/db/replica/snapshot"
	"github.com/locket-service/locket/internal/rules/claim"
)

// A folder may be read while its server writes: the snapshot and the log are then of different moments when a new snapshot is made
// in between, or the end of the log is half written. It is read again dumpTries times.
const (
	dumpTries = 40
	dumpPause = 50 * time.Millisecond
)

// Dump gives a sink the contents of a folder at one position, even while a server uses it. It reads files, and changes
// nothing: it merges the last snapshot with the log since. Its memory use depends on that part of the log.
func Dump(path string, to backup.Sink) (err error) {
	for try := 1; ; try++ {
		var d *reading
		d, err = openDump(path)
		if err == nil {
			defer d.close()
			return d.run(to)
		}
		if !inUse(path) {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if try == dumpTries {
			return fmt.Errorf("read %s: %w: %w", path, backup.ErrBusy, err)
		}
		time.Sleep(dumpPause)
	}
}

// reading is a folder that is read.
type reading struct {
	folder    *folder
	snapshots *frozen
	logs      *frozen
	log       *filelog.Log
	history   *history.Dump
	// index is the snapshot's, 0 for none.
	index uint64
	head  backup.Head
}

// openDump opens all that is needed of a folder, so that it can be read whatever its server deletes.
func openDump(path string) (_ *reading, err error) {
	d := &reading{folder: &folder{path: path}, head: backup.Head{Engine: "embedded", Taken: claim.Time(time.Now().UnixMicro())}}
	d.snapshots, d.logs = freeze(d.folder.file(snapshotsName)), freeze(d.folder.file(logName))
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	switch err := d.folder.readNode(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: it has no data of a server, or its file %s is missing", ErrFolder, nodeName)
	case err != nil:
		return nil, err
	case d.folder.state == stateFilling:
		return nil, backup.ErrHalfRestored
	case !d.folder.isUsed():
		return nil, fmt.Errorf("%w: %s holds nothing yet: its server has never served", ErrFolder, path)
	}
	least, err := d.openSnapshot()
	if err != nil {
		return nil, err
	}
	// The history before the log, which has all that the history has.
	if d.history, err = history.OpenDump(d.folder.file(historyName), d.folder.log, least, d.index); err != nil {
		return nil, err
	}
	options, had := filelog.Options{Copy: d.folder.state == stateCluster}, d.history.Entry()
	if options.Copy { // after a power cut it may end before the history: the cluster has the rest
		if had, err = 0, d.history.Complete(d.index); err != nil {
			return nil, err
		}
	}
	if d.log, err = filelog.Open(d.logs, d.folder.log, max(d.index, had), options); err != nil {
		return nil, err
	}
	if first := d.log.First(); first > d.index+1 {
		return nil, fmt.Errorf("%w: the log begins at entry %d, and there is no snapshot with those before", ErrFolder, first)
	}
	return d, nil
}

// openSnapshot looks at the begin of the newest snapshot. It returns the entry that the history must cover at least.
func (d *reading) openSnapshot() (covered uint64, err error) {
	if d.index, err = snapshot.Latest(d.snapshots); err != nil || d.index == 0 {
		return 0, err
	}
	m, err := snapshot.MetaOf(d.snapshots, d.index)
	if err != nil {
		return 0, err
	}
	if m.Log != d.folder.log {
		return 0, fmt.Errorf("%w: %s holds a snapshot of another server", ErrFolder, d.snapshots.path)
	}
	return min(m.History, m.Index), nil
}

func (d *reading) close() {
	if d.history != nil {
		_ = d.history.Close() // nothing was written to it
	}
	d.logs.close()
	d.snapshots.close()
}

// run gives a sink what the snapshot and the log say, and the history up to the snapshot: what has ended since is in the log.
func (d *reading) run(to backup.Sink) error {
	v, err := snapshot.Since(d.snapshots, d.index, d.log.Last(), func(from, to uint64, yield func(data []byte) error) error {
		return records(d.log, new(record.Joiner), from, to, func(_ uint64, data []byte) error { return yield(data) })
	})
	if err != nil {
		return err
	}
	d.head.Lease, d.head.Floor, d.head.Quarantine = v.Head()
	if err := to.Begin(d.head); err != nil {
		return err
	}
	put := func(r *record.Record) error { return give(r, to) }
	if err := v.Write(put, to.Ended); err != nil {
		return err
	}
	if err := d.readHistory(v.Cuts(), to); err != nil {
		return err
	}
	d.head.Lease, d.head.Floor, d.head.Quarantine = v.Head() // of a folder that was filled, the last block has more
	return to.End(d.head)
}

// readHistory gives a sink the claims of the history. Damaged ones are problems of a sink that receives these, and errors of others.
func (d *reading) readHistory(cuts record.Cuts, to backup.Sink) error {
	damaged := func(problem string) error { return errors.New(problem) }
	if inspector, is := to.(backup.Inspector); is {
		damaged = func(problem string) error {
			inspector.Problem(problem)
			return nil
		}
		if err := d.history.Inspect(inspector.Problem); err != nil {
			return err
		}
	}
	return d.history.Read(cuts, to.Ended, damaged)
}

// give gives a sink the block of a snapshot.
func give(r *record.Record, to backup.Sink) error {
	for _, t := range r.Claims {
		if err := to.Claim(t.After); err != nil {
			return err
		}
	}
	for _, c := range r.Sessions {
		if err := to.Session(c.After); err != nil {
			return err
		}
	}
	for _, s := range r.Servers {
		if err := to.Server(backup.Server{Name: s.Name, Seen: s.Seen}); err != nil {
			return err
		}
	}
	for _, row := range r.Rows {
		if err := to.Row(backup.Row{Row: claim.Row{Resource: row.Name, Version: row.Version}}); err != nil {
			return err
		}
	}
	return nil
}
