package loopback_test

import (
	"testing"

	"github.com/locket-service/locket/internal/base/loopback"
)

func TestIs(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.8.9.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "10.0.0.1": false, "::": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "[::1]": false,
	} {
		if got := loopback.Is(host); got != want {
			t.Errorf("%q is this machine: %v, want %v", host, got, want)
		}
	}
}
