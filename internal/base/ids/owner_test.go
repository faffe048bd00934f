package ids

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestNewOwner: an owner names host and process, and no two are the same.
func TestNewOwner(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for range 1000 {
		owner := NewOwner()
		if seen[owner] {
			t.Fatalf("%s twice", owner)
		}
		seen[owner] = true
		prefix := fmt.Sprintf("%s/%d/", host, os.Getpid())
		if random, found := strings.CutPrefix(owner, prefix); !found || len(random) != 13 {
			t.Fatalf("owner %q, want 13 characters after %q", owner, prefix)
		}
	}
}

// TestNewOwnerOddHosts: for any host name, the server accepts the owner.
func TestNewOwnerOddHosts(t *testing.T) {
	for _, c := range []struct {
		host string
		err  error
		want string
	}{
		{host: "web-1", want: "web-1/"},
		{host: "", want: "unknown/"},
		{host: "half", err: errors.New("no name"), want: "unknown/"},
		{host: "a\xff\x00b", want: "ab/"},
		{host: strings.Repeat("h", 5000), want: strings.Repeat("h", 253) + "/"},
		{host: strings.Repeat("h", 252) + "é", want: strings.Repeat("h", 252) + "/"},
	} {
		owner := newOwner(c.host, c.err)
		if !strings.HasPrefix(owner, c.want) || !utf8.ValidString(owner) || strings.Contains(owner, "\x00") || len(owner) > 1024 {
			t.Errorf("host %.20q, error %v: owner %q, want %.20q first", c.host, c.err, owner, c.want)
		}
	}
}
