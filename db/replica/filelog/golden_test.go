package filelog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
	"github.com/locket-service/locket/db/replica/filelog"
)

// TestGolden: a log that this version has written is read, and written in the same way.
func TestGolden(t *testing.T) {
	d := disktest.New()
	write(t, d, "one", strings.Repeat("two ", 200))
	golden.Check(
		t,
		golden.Format{Name: "segment-1", Written: d.Content(segment), Again: func(data []byte) ([]byte, error) { return again(t, d, segment, data) }},
		golden.Format{Name: "end-1", Written: d.Content(end), Again: func(data []byte) ([]byte, error) { return again(t, d, end, data) }},
	)
}

// The files of the log.
const (
	segment = "0000000000000001.log"
	end     = "end"
)

// write writes a log with some entries.
func write(t *testing.T, d disk.Disk, entries ...string) {
	t.Helper()
	l, err := filelog.Create(d, id, 5, small)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := l.Append([]byte(entry)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SaveEnd(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// again reads a log with another file in the place of one, and writes it anew. It returns that file.
func again(t *testing.T, d *disktest.Disk, name string, data []byte) ([]byte, error) {
	t.Helper()
	files, err := d.List()
	if err != nil {
		return nil, err
	}
	from, to := disktest.New(), disktest.New()
	for _, file := range files {
		content := d.Content(file)
		if file == name {
			content = data
		}
		f, err := from.Create(file)
		if err != nil {
			return nil, err
		}
		if _, err := f.WriteAt(content, 0); err != nil {
			return nil, err
		}
	}
	l, err := filelog.Open(from, id, 5, small)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", files, err)
	}
	defer func() { _ = l.Close() }()
	entries, err := l.Entries(l.First(), l.Last()+1, 1<<20)
	var texts []string
	for _, entry := range entries {
		texts = append(texts, string(entry))
	}
	write(t, to, texts...)
	return to.Content(name), err
}
