package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// followFeed follows a feed, and writes a line for each call of its listener.
const followFeed = deaf + `
const {follow} = await import('./feed.js');
const say = (what) => (...values) => console.log([what, ...values.filter((value) => typeof value !== 'object')].join(' '));
const listener = Object.fromEntries(['live', 'lost', 'reset', 'transition', 'refusals', 'refused'].map((what) => [what, say(what)]));
await follow(process.argv[2], {}, new AbortController().signal, listener);
process.exitCode = 0;
setTimeout(() => process.exit(), 1000); // connections that are kept do not hold it
`

// TestFeedGoesOn: whatever is answered once, by a proxy or by a server that another version takes the place of, the feed goes
// on. It ends only when the caller may not watch.
func TestFeedGoesOn(t *testing.T) {
	t.Parallel()
	const stream, end = http.StatusOK, http.StatusForbidden
	const silent, half, stalled = 0, 1, 2 // until the client gives up: no answer, one without the end of its body, and a feed that says nothing more
	answers := []struct {
		status int
		cursor string // that the client sends
		heard  []string
	}{
		{http.StatusNotFound, "", []string{"lost no such page"}},
		{http.StatusBadRequest, "", []string{"lost no such page"}},
		{stream, "", []string{"live", "transition", "lost the server ended the stream"}},
		{http.StatusBadRequest, "3", []string{"reset", "lost no such page"}},
		{stream, "", []string{"live", "transition", "lost the server ended the stream"}},
		{http.StatusNotFound, "5", []string{"lost no such page"}},
		{silent, "5", []string{"lost the connection was silent"}},
		{half, "5", []string{"lost the server answered 502"}},
		{stalled, "5", []string{"live", "transition", "lost the connection was silent"}},
		{http.StatusServiceUnavailable, "9", []string{"lost no such page"}},
		{end, "9", []string{"refused 403 no such page"}},
	}
	left := make(chan struct{}) // closed when the client has left the feed that says nothing more
	var mu sync.Mutex
	var cursors, wantCursors, want []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n := len(cursors)
		cursors = append(cursors, r.Header.Get("Last-Event-ID"))
		mu.Unlock()
		if n > 0 && n < len(answers) && answers[n-1].status == stalled {
			select {
			case <-left:
			case <-r.Context().Done():
			}
		}
		switch {
		case n >= len(answers):
			w.WriteHeader(end)
		case answers[n].status == silent:
			<-r.Context().Done()
		case answers[n].status == half:
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case answers[n].status == stream, answers[n].status == stalled:
			fmt.Fprintf(w, "retry: 1\n\nid: %d\nevent: transition\ndata: {}\n\n", n+1)
			if answers[n].status == stalled {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(left)
			}
		default:
			w.WriteHeader(answers[n].status)
			fmt.Fprint(w, `{"message": "no such page"}`)
		}
	}))
	defer server.Close()
	for _, a := range answers {
		wantCursors, want = append(wantCursors, a.cursor), append(want, a.heard...)
	}
	feed, err := static.ReadFile("static/lib/feed.js")
	if err != nil {
		t.Fatal(err)
	}
	hasty := string(feed)
	for what, sooner := range map[string]string{
		"setTimeout(done, pause)": "setTimeout(done, 0)", // between two connections
		"silence = 40_000":        "silence = 10_000",    // of a server
	} {
		if !strings.Contains(hasty, what) {
			t.Fatalf("there is no %q", what)
		}
		hasty = strings.Replace(hasty, what, sooner, 1)
	}
	folder := modules(t, map[string]string{"feed.js": hasty, "follow.js": followFeed})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	heard, err := exec.CommandContext(ctx, "node", filepath.Join(folder, "follow.js"), server.URL).CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, heard)
	}
	if got := strings.Split(strings.TrimSpace(string(heard)), "\n"); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(cursors, wantCursors) {
		t.Errorf("the cursors were %q, want %q", cursors, wantCursors)
	}
}
