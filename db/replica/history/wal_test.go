package history_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestBesideReaders: the write-ahead log of the history stays small even if there are always readers, each beginning
// before the last one has ended.
func TestBesideReaders(t *testing.T) {
	const limit, bytes = 1 << 20, 32 << 10
	path := filepath.Join(t.TempDir(), "history.db")
	h, err := history.Open(path, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	h.SetWALBytes(limit)
	entry := uint64(0)
	write := func() {
		entry++
		c := &claim.Claim{ID: fmt.Sprint(entry), Resource: "r", Status: claim.Released, Value: strings.Repeat("v", bytes), Finished: 1}
		if err := h.Write([]history.Ended{{Entry: entry, Claim: c}}, entry, nil); err != nil {
			t.Fatal(err)
		}
	}
	write()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	begin := func() (end func() error) {
		begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- h.List(t.Context(), db.Filter{}, 1, func(*claim.Claim) bool {
				close(begun)
				<-goOn
				return false
			})
		}()
		<-begun
		return func() error { close(goOn); return <-ended }
	}
	go func() {
		end := begin()
		for {
			select {
			case <-stop:
				stopped <- end()
				return
			default:
			}
			next := begin()
			if err := end(); err != nil {
				stopped <- err
				return
			}
			end = next
		}
	}()
	most := int64(0)
	for range 10 * limit / bytes {
		write()
		if info, err := os.Stat(path + "-wal"); err == nil {
			most = max(most, info.Size())
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if most > 5*limit { // of the ten that were written; an attempt to empty it may fail while a reader has no turn
		t.Errorf("the file has become %d bytes large", most)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
