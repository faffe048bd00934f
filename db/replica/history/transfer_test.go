package history_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/locket-service/locket/db/codec"
	"github.com/locket-service/locket/db/replica/history"
	"github.com/locket-service/locket/internal/rules/claim"
)

func two() []history.Ended {
	return []history.Ended{
		{Entry: 3, Claim: &claim.Claim{ID: "a", Resource: "r", Owner: "o", Status: claim.Released, Version: 5, Created: 1, Finished: 2, UserData: []byte("{}")}},
		{Entry: 300, Claim: &claim.Claim{ID: "b", Resource: "r", Owner: "o", Status: claim.Expired, Version: 6, Created: 1, Finished: 3, Reason: "why"}},
	}
}

// skipped returns a history that has a gap after nothing.
func skipped(t *testing.T, entry uint64) *history.History {
	t.Helper()
	h, err := history.Open(filepath.Join(t.TempDir(), "history.db"), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if err := h.Write(nil, entry, &history.Gap{Entry: entry}); err != nil {
		t.Fatal(err)
	}
	return h
}

func directly(do func() error) error { return do() }

// TestStrangeRanges: a range is refused unless its claims have ended in the gap, and follow those before by their ids.
func TestStrangeRanges(t *testing.T) {
	changed := func(change func(claims []history.Ended)) []byte {
		claims := two()
		change(claims)
		return history.Range(claims, "b", true)
	}
	for what, part := range map[string][]byte{
		"an entry behind the gap": changed(func(c []history.Ended) { c[1].Entry = 301 }),
		"an entry before the gap": changed(func(c []history.Ended) { c[0].Entry = 0 }),
		"in another order":        changed(func(c []history.Ended) { c[0], c[1] = c[1], c[0] }),
		"a claim twice":           changed(func(c []history.Ended) { c[1] = c[0] }),
		"a live claim":            changed(func(c []history.Ended) { c[1].Claim.Status = claim.Active }),
		"no id":                   changed(func(c []history.Ended) { c[0].Claim.ID = "" }),
		"an end before its claim": history.Range(two(), "a", true),
		"no progress":             history.Range(nil, "", false),
		"no checksum":             {1, 0},
	} {
		h := skipped(t, 300)
		_, err := h.Receive(func(_ []byte, add func([]byte) error) error { return add(part) }, directly)
		if !errors.Is(err, codec.ErrFormat) || h.Count() != 0 || h.Complete() {
			t.Errorf("%s: %d claims, complete: %t (%v)", what, h.Count(), h.Complete(), err)
		}
	}
	h := skipped(t, 300)
	_, err := h.Receive(func(_ []byte, add func([]byte) error) error {
		return errors.Join(add(history.Range(two()[:1], "a", false)), add(history.Range(two()[:1], "a", false)))
	}, directly)
	if !errors.Is(err, codec.ErrFormat) || h.Count() != 1 {
		t.Errorf("the same range twice: %d claims (%v)", h.Count(), err)
	}
	if _, err := h.Receive(func(request []byte, add func([]byte) error) error {
		if !bytes.HasSuffix(request, []byte("a")) {
			t.Errorf("it goes on with %q", request)
		}
		return add(history.Range(two()[1:], "c", true))
	}, directly); err != nil || !h.Complete() || h.Count() != 2 {
		t.Errorf("%d claims, complete: %t (%v)", h.Count(), h.Complete(), err)
	}
}
