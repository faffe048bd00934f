package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/locket-service/locket/db/replica/history"
)

// A snapshot waits for the history, because the log no longer has claims that ended before it. While the history cannot
// be written the log grows, up to Options.LogBytes, or twice the size of a snapshot. Then a snapshot is made anyway:
// ended claims are then in memory alone until the history can be written, and are lost with this process. First the
// file gapName records which claims the history may lack, so that it gets a gap, and is not taken for an older one.

// gapText is the content of the file before its checksum.
const gapText = "after %d\nentry %d\nclaims %d\n"

// noteGap writes down that claims which ended between two entries of the log may be in no file.
func (f *folder) noteGap(g history.Gap) error {
	return f.write(gapName, fmt.Sprintf(gapText, g.After, g.Entry, g.Claims))
}

// gap returns the gap that noteGap has recorded, if any.
func (f *folder) gap() (g history.Gap, err error) {
	text, err := os.ReadFile(f.file(gapName)) // the folder may be read-only
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return g, err
	}
	body, intact := summed(text)
	if n, err := fmt.Sscanf(body, gapText, &g.After, &g.Entry, &g.Claims); !intact || n != 3 || err != nil {
		return g, fmt.Errorf("%w: %s is damaged: bring it back from a backup", ErrFolder, f.file(gapName))
	}
	return g, nil
}

// misses reports whether a history that covers has may miss later claims, until a snapshot was made.
func misses(g history.Gap, has, snapshot uint64) bool {
	return has < snapshot && g.After <= has && snapshot <= g.Entry
}

// noteGap records which claims the history misses while there is a snapshot of an entry.
func (s *Store) noteGap(entry uint64) error {
	g := history.Gap{After: s.history.Entry(), Entry: entry}
	s.mu.RLock()
	if s.pending.gap != nil {
		g.Claims = s.pending.gap.Claims
	}
	for _, e := range s.pending.ended {
		if e.Entry <= entry {
			g.Claims++
		}
	}
	s.mu.RUnlock()
	s.hasGap = true
	return s.folder.noteGap(g)
}

// forgetGap deletes what was written down, now that the history has everything.
func (s *Store) forgetGap() error {
	if !s.hasGap {
		return nil
	}
	if err := s.folder.held.Remove(gapName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.hasGap = false
	return nil
}
