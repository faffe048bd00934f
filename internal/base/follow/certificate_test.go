package follow_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/internal/base/follow"
)

// TestEnding: a certificate that ends soon is a problem. How soon depends on its whole time.
func TestEnding(t *testing.T) {
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		whole, left time.Duration
		want        string
	}{
		"a year, a month left":    {365 * day, 30 * day, ""},
		"a year, 13 days left":    {365 * day, 13 * day, "ends at"},
		"90 days, 20 left":        {90 * day, 20 * day, ""},
		"an hour, 15 minutes":     {time.Hour, 15 * time.Minute, ""},
		"an hour, 10 minutes":     {time.Hour, 10 * time.Minute, "ends at"},
		"none left":               {time.Hour, -time.Minute, "ended at"},
		"it is not in the future": {day, -day, "ended at"},
	} {
		now := time.Now()
		leaf := &x509.Certificate{NotBefore: now.Add(test.left - test.whole), NotAfter: now.Add(test.left)}
		file, err := follow.Open("--cert", func([][]byte) (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{{Leaf: leaf}}, MinVersion: tls.VersionTLS13}, nil
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		logs := new(strings.Builder)
		set := follow.NewSet(slog.New(slog.NewTextHandler(logs, nil)))
		set.Add(file)
		got := strings.Join(set.Problems(), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
		set.Look(t.Context())
		set.Look(t.Context())
		if warned := strings.Count(logs.String(), "must be replaced"); (warned == 1) != (test.want != "") {
			t.Errorf("%s: %d warnings in the log", name, warned)
		}
	}
}
