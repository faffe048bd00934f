package mysql

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestDatabaseBecomesAnother: a database that becomes a node of a cluster, or loses its binary log, under a running server is used as what it is. One that is
// a node no more is used with the same care: another connection may still lead to one.
func TestDatabaseBecomesAnother(t *testing.T) {
	t.Parallel()
	config, err := parseDSN("root@tcp(127.0.0.1:1)/locket")
	must(t, err)
	s := newStore(config)
	defer s.Close()
	single := map[string]string{"log_bin": "ON", "wsrep_on": "OFF", "group_replication_group_name": "", "innodb_flush_log_at_trx_commit": "1"}
	type use struct{ packets, group, barriers bool }
	for _, step := range []struct {
		name, value string
		want        use
	}{
		{"log_bin", "ON", use{packets: true}},
		{"log_bin", "OFF", use{packets: true, barriers: true}},
		{"wsrep_on", "ON", use{barriers: true}},
		{"group_replication_group_name", "G", use{group: true, barriers: true}},
		{"log_bin", "ON", use{group: true, barriers: true}},
	} {
		is := map[string]string{step.name: step.value}
		for name, value := range single {
			if name != step.name {
				is[name] = value
			}
		}
		s.note(is)
		if got := (use{s.packets(), s.group.Load(), s.barriers.needed.Load()}); got != step.want {
			t.Errorf("after %s = %s: %+v, want %+v", step.name, step.value, got, step.want)
		}
	}
}

// TestNewConnectionsLook: each new connection finds out what the database is.
func TestNewConnectionsLook(t *testing.T) {
	t.Parallel()
	s := openHasty(t, patient(t, fixtures.MySQL(t)))
	var is map[string]string
	conn, err := s.control.Conn(t.Context())
	must(t, err)
	must(t, conn.Raw(func(conn any) (err error) {
		is, err = settings(t.Context(), conn.(driver.QueryerContext))
		return err
	}))
	must(t, conn.Close())
	for range 2 {
		if got, want := s.barriers.needed.Load(), showsEarly(is, false); got != want || len(is) < 3 {
			t.Errorf("reads need barriers: %t, want %t (%v)", got, want, is)
		}
		s.barriers.needed.Store(false) // as if the database had had a binary log until now
		s.renew()
		if _, _, _, err := s.Get(t.Context(), "none", 0); !errors.Is(err, claim.ErrNotFound) {
			t.Fatal(err)
		}
	}
}
