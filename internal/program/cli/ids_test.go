package cli

import (
	"encoding/base32"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/show"
)

// newClaimAt is ids.NewClaim with another time.
func newClaimAt(at time.Time) string {
	id := uuid.Must(uuid.NewV7())
	binary.BigEndian.PutUint32(id[:], uint32(at.UnixMilli()>>16))
	binary.BigEndian.PutUint16(id[4:], uint16(at.UnixMilli())) //nolint:gosec // the rest
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:]))
}

// A unique prefix of an id names its claim, live or ended, and of several claims none.
func TestPrefixOfID(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	id := newClaimAt(time.Now().Add(-clockMargins[1] / 2)) // its claims are all made within one margin, also on a busy machine
	if !ids.IsClaim(id) {
		t.Fatalf("%s is no id", id)
	}
	prefix, other := id[:25], id[:25]+map[bool]string{true: "4", false: "0"}[id[25] == '0']
	c.run("claim", "a", "--id", id, "--ttl", "1h")
	for _, short := range []string{id[:3], id[:10], prefix, id} {
		if got := c.run("get", short, "-o", "name"); got != id+"\n" {
			t.Errorf("%s is %s", short, got)
		}
	}
	c.run("claim", "b", "--id", other, "--ttl", "1h")
	for _, command := range [][]string{{"get", prefix}, {"revoke", prefix}, {"release", "--id", prefix}, {"renew", prefix, "--ttl", "1m"}} {
		if _, stderr, status := c.try(command...); status != exit.Usage || !strings.Contains(stderr, id) || !strings.Contains(stderr, other) {
			t.Errorf("%q: status %d, %s", command, status, stderr)
		}
	}
	c.run("claim", "c", "--id", prefix, "--ttl", "1h")
	if got := c.run("get", prefix, "-o", "name"); got != prefix+"\n" {
		t.Errorf("the id itself is %s", got)
	}
	last := c.run("claim", "d", "--ttl", "1h", "-o", "name")[:20]
	c.run("renew", last, "--ttl", "5m")
	c.run("release", "--id", last)
	if ended := c.run("get", last); !strings.Contains(ended, "released") {
		t.Error(ended)
	}
	if _, stderr, status := c.try("get", "0000"); status != exit.NotFound {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// Short ids differ.
func TestShortIDs(t *testing.T) {
	t.Parallel()
	list := []string{"06h23ggp8dt858lj93qnuones8", "06h23ggp8dt868lj93qnuones8", "06h23ggp9dt858lj93qnuones8", "nightly-2026-11-21", "-"}
	short := show.Shortener(list, show.ShortClaim)
	for i, want := range []string{"06h23ggp8dt85", "06h23ggp8dt86", "06h23ggp9dt85", list[3], list[4]} {
		if got := short(list[i]); got != want {
			t.Errorf("%s: %s, want %s", list[i], got, want)
		}
	}
	if got := show.Shortener(list[2:], show.ShortClaim)(list[2]); got != "06h23ggp9d" {
		t.Error(got)
	}
}
