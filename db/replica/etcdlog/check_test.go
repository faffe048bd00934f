package etcdlog_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db/replica/etcdlog"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/tests/harness"
)

// Each error names the flag that an operator must change.
func TestOptions(t *testing.T) {
	https, files := []string{"https://a:1"}, follow.NewSet(nil)
	empty := filepath.Join(t.TempDir(), "empty")
	must(t, os.WriteFile(empty, nil, 0o600))
	for says, o := range map[string]etcdlog.Options{
		"--etcd: no endpoint":                       {},
		`--etcd: "localhost:2379": must be http://`: {Endpoints: []string{"localhost:2379"}},
		`--etcd: "10.0.0.1:2379": must be http://`:  {Endpoints: []string{"10.0.0.1:2379"}},
		"--etcd: some endpoints have http":          {Endpoints: []string{"http://a:1", "https://b:1"}},
		`--etcd-prefix: "/locket": must end with`:   {Endpoints: https, Prefix: "/locket"},
		"--etcd-ca, --etcd-cert, --etcd-key: the":   {Endpoints: []string{"http://a:1"}, CA: "ca.crt"},
		"--etcd-cert and --etcd-key: give both":     {Endpoints: https, Cert: "tls.crt"},
		"--etcd-user and --etcd-password-file: gi":  {Endpoints: https, User: "locket"},
		"--etcd-ca, --etcd-cert, --etcd-key: open":  {Endpoints: https, CA: "no-such-file", Files: files},
		"--etcd-password-file: open":                {Endpoints: https, User: "locket", PasswordFile: "no-such-file", Files: files},
		"--etcd-password-file: " + empty:            {Endpoints: https, User: "locket", PasswordFile: empty, Files: files},
	} {
		if _, err := etcdlog.Open(o); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}

func TestCheck(t *testing.T) {
	triple, single := cluster(t, triple37), cluster(t, single34)
	o := quietly(triple)
	report, err := open(t, o).Check(t.Context())
	leaders := 0
	for _, m := range report.Members {
		if !strings.HasPrefix(m.Version, "3.7.") || m.Size == 0 || m.Quota == 0 || m.Err != nil {
			t.Errorf("member %+v", m)
		}
		if m.Leads {
			leaders++
		}
	}
	if err != nil || len(report.Members) != 3 || leaders != 1 {
		t.Errorf("%+v, %v", report, err)
	}

	down, err := fixtures.FreeAddress()
	must(t, err)
	o.Endpoints = append(o.Endpoints, "http://"+down)
	report, err = open(t, o).Check(t.Context())
	if text := strings.Join(report.Warnings, "\n"); err != nil || !strings.Contains(text, down+" does not answer") {
		t.Errorf("with an endpoint that is down: %q, %v", text, err)
	}
	if len(report.Members) != 4 || report.Members[3].Err == nil {
		t.Errorf("with an endpoint that is down: %+v", report)
	}

	o.Endpoints = append(triple.Endpoints(), single.Endpoints()...)
	if _, err := open(t, o).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster of etcd") {
		t.Errorf("with endpoints of two clusters: %v", err)
	}
}

// Without a quorum Check fails after a while.
func TestCheckNoQuorum(t *testing.T) {
	t.Parallel()
	down, err := fixtures.FreeAddress()
	must(t, err)
	log := slog.New(slog.DiscardHandler)
	_, err = open(t, etcdlog.Options{Endpoints: []string{"http://" + down}, Log: log}).Check(t.Context())
	if !errors.Is(err, order.ErrUnavailable) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("with etcd down: %v", err)
	}
}

// A server uses the current files for each new connection.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca, foreign := fixtures.NewCA(t), fixtures.NewCA(t)
	e := fixtures.NewEtcd(t, fixtures.Etcd34, 1, fixtures.WithEtcdTLS(t, ca))
	o := quietly(e)
	o.CA = ca.File
	o.Cert, o.Key = ca.Issue(t, "locket")
	l := open(t, o)
	must(t, errOf(l.Check(t.Context())), l.Raise(t.Context(), 0, 0, nil))
	wrong := map[string]etcdlog.Options{"no certificate": o, "a foreign authority": o, "a foreign certificate": o}
	for name, o := range wrong {
		switch name {
		case "no certificate":
			o.Cert, o.Key = "", ""
		case "a foreign authority":
			o.CA = foreign.File
		default:
			o.Cert, o.Key = foreign.Issue(t, "locket")
		}
		err := open(t, o).Raise(brief(t), 1, 0, nil)
		// etcd resets the connection of a client that it refuses, and the alert that says why may be lost.
		if !errors.Is(err, order.ErrUnavailable) || o.CA == foreign.File && !strings.Contains(err.Error(), "--etcd-ca: tls: failed to verify certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	testReplaced(t, o, foreign)
}

// testReplaced replaces the files of a foreign authority by good ones.
func testReplaced(t *testing.T, good etcdlog.Options, foreign *fixtures.CA) {
	t.Helper()
	o := good
	o.Cert, o.Key = foreign.Issue(t, "locket")
	l := open(t, o)
	if err := l.Raise(brief(t), 1, 0, nil); err == nil {
		t.Error("the foreign certificate was taken")
	}
	for to, from := range map[string]string{o.Cert: good.Cert, o.Key: good.Key} {
		text, err := os.ReadFile(from)
		must(t, err, os.WriteFile(to, text, 0o600))
	}
	harness.Eventually(t, func() error {
		o.Files.Look(t.Context())
		return l.Raise(brief(t), 1, 0, nil)
	})
}

// brief returns a context for a request that is expected to fail.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
