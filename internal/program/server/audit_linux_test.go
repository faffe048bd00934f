package server

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// A line that a full disk cut off is whole in the file that is opened next; in the same file it is continued.
func TestAuditPartOfLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := openAudit(path, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	reader, writer, err := os.Pipe() // it takes some bytes, and then none
	must(t, err)
	room, err := unix.FcntlInt(writer.Fd(), unix.F_GETPIPE_SZ, 0)
	must(t, err)
	line := func(i int) string { return fmt.Sprintf("%999d\n", i) }
	log := f.file
	f.file = writer
	lines := room/1000 + 5
	for i := range lines {
		f.batch, f.count = append(f.batch, line(i)...), f.count+1
		f.room <- struct{}{}
	}
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		f.flush()
	}()
	for taken := 0; taken < room; time.Sleep(time.Millisecond) { // real time: the pause between two looks
		taken, err = unix.IoctlGetInt(int(reader.Fd()), unix.TIOCINQ)
		must(t, err)
	}
	must(t, reader.Close())
	<-flushed
	if f.failing() == nil {
		t.Fatal("it was written")
	}
	must(t, f.open())
	f.flush()
	must(t, log.Close())
	text, err := os.ReadFile(path)
	must(t, err)
	want := ""
	for i := room / 1000; i < lines; i++ {
		want += line(i)
	}
	if string(text) != want || len(f.room) != 0 {
		t.Errorf("%d bytes, and not %d: %.50q; %d lines wait", len(text), len(want), text, len(f.room))
	}

	f.batch, f.partial, f.count = []byte("whole\n"), 3, 1
	f.room <- struct{}{}
	must(t, f.open())
	f.flush()
	if text, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(text), "\nle\n") {
		t.Errorf("%v, %.50q", err, text[max(0, len(text)-50):])
	}
}
