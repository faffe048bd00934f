package peer_test

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/locket-service/locket/db/dbtest/golden"
	"github.com/locket-service/locket/db/replica/peer"
)

// valid is an About of version 1.
const valid = `{"version":1,"address":"a:1","fingerprint":"` + bytes32 + `","secret":"` + bytes32 + `"}`

const bytes32 = "ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8="

// TestGolden: an About that this version has written is read, and written in the same way.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Format{Name: "about-1", Written: []byte(valid), Again: peer.AboutAgain})
}

// TestAbout: an About is refused unless it is complete and of this version.
func TestAbout(t *testing.T) {
	p := caller(t)
	for what, about := range map[string]string{
		"nothing":           "",
		"no JSON":           "locket",
		"another version":   strings.Replace(valid, `"version":1`, `"version":2`, 1),
		"no address":        strings.Replace(valid, "a:1", "a", 1),
		"a short secret":    strings.Replace(valid, `"`+bytes32+`"}`, `"ABEi"}`, 1),
		"no digits":         strings.Replace(valid, "ABEiM0RV", "ABEiM0R?", 1),
		"no secret":         strings.Replace(valid, `,"secret":"`+bytes32+`"`, "", 1),
		"another member":    strings.Replace(valid, `"version":1`, `"version":1,"more":1`, 1),
		"more behind it":    valid + "{}",
		"too long":          valid + strings.Repeat(" ", 5000),
		"a list":            "[]",
		"a number too much": valid + "1",
	} {
		if err := greet(t, p, []byte(about)); !errors.Is(err, peer.ErrAbout) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := greet(t, p, []byte(strings.Replace(valid, "a:1", "127.0.0.1:1", 1))); err == nil || errors.Is(err, peer.ErrAbout) {
		t.Errorf("the valid one: %v", err)
	}
	if !bytes.HasPrefix(p.About(), []byte(valid[:len(`{"version":1,"address":"`)])) || len(p.About()) > 300 {
		t.Errorf("an About is %s", p.About())
	}
}

// TestAdvertise: a server that listens on all addresses is told which one others dial.
func TestAdvertise(t *testing.T) {
	for _, test := range []struct{ listen, advertise, want string }{
		{"localhost:0", "", "localhost:PORT"},
		{"127.0.0.1:0", "", "127.0.0.1:PORT"},
		{"127.0.0.1:0", "node-a:8893", "node-a:8893"},
		{"127.0.0.1:0", "[::1]:8893", "[::1]:8893"},
		{"127.0.0.1:0", "0.0.0.0:8893", ""},
		{"127.0.0.1:0", "[::]:8893", ""},
		{"127.0.0.1:0", ":8893", ""},
		{"127.0.0.1:0", "node-a", ""},
		{"127.0.0.1:0", "node-a:", ""},
		{"127.0.0.1:0", "node-a:0", ""},
	} {
		p, err := peer.Listen(test.listen, peer.Options{Advertise: test.advertise})
		if err != nil {
			if test.want != "" {
				t.Error(test, err)
			}
			continue
		}
		host, port, _ := net.SplitHostPort(p.Address())
		if want := strings.Replace(test.want, "PORT", port, 1); p.Address() != want || host == "" {
			t.Errorf("%v: %s is advertised", test, p.Address())
		}
		p.Close()
	}
}

// TestWildcard: without an address that others dial, a server does not listen on all addresses: it opens
// no port.
func TestWildcard(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		if p, err := peer.Listen(address, peer.Options{}); err == nil {
			p.Close()
			t.Errorf("%s: there is no error", address)
		}
	}
}
