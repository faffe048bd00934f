package mysql

import (
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
)

func TestLosses(t *testing.T) {
	safe := map[string]string{"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1", "innodb_doublewrite": "ON", "innodb_flush_method": "O_DIRECT"}
	if losses := lossesOf(safe, false); len(losses) > 0 {
		t.Errorf("safe settings: %q", losses)
	}
	for _, c := range []struct{ name, value, says string }{
		{"innodb_flush_log_at_trx_commit", "0", "process or machine"},
		{"innodb_flush_log_at_trx_commit", "2", "loses its power"},
		{"sync_binlog", "0", "rolled back at the restart"},
		{"sync_binlog", "100", "rolled back at the restart"},
		{"innodb_doublewrite", "OFF", "half-written page"},
		{"innodb_flush_method", "NOSYNC", "loses its power"},
	} {
		is := map[string]string{}
		for name, value := range safe {
			is[name] = value
		}
		is[c.name] = c.value
		if losses := lossesOf(is, false); len(losses) != 1 || !strings.Contains(losses[0], c.name+" is "+c.value) || !strings.Contains(losses[0], c.says) {
			t.Errorf("%s = %s: %q", c.name, c.value, losses)
		}
		if c.name != "sync_binlog" {
			continue
		}
		is["log_bin"] = "OFF"
		if losses := lossesOf(is, false); len(losses) > 0 {
			t.Errorf("without a binary log: %q", losses)
		}
	}
}

// TestShowsEarly: where the database has a commit elsewhere before it shows it, no read needs a barrier.
func TestShowsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		is      map[string]string
		cluster bool
		want    bool
	}{
		"MariaDB's defaults":             {is: map[string]string{"log_bin": "OFF", "innodb_flush_log_at_trx_commit": "1"}, want: true},
		"MySQL's defaults":               {is: map[string]string{"log_bin": "ON", "sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}},
		"a binary log in the redo log":   {is: map[string]string{"log_bin": "ON", "binlog_storage_engine": "INNODB", "innodb_flush_log_at_trx_commit": "1"}, want: true},
		"a cluster":                      {is: map[string]string{"log_bin": "OFF", "innodb_flush_log_at_trx_commit": "1"}, cluster: true},
		"the log goes to memory":         {is: map[string]string{"log_bin": "OFF", "innodb_flush_log_at_trx_commit": "0"}},
		"the log is written, not synced": {is: map[string]string{"log_bin": "OFF", "innodb_flush_log_at_trx_commit": "2"}, want: true},
		"nothing is known":               {want: true},
	} {
		if got := showsEarly(c.is, c.cluster); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLossesOfAServer: the settings come from the database.
func TestLossesOfAServer(t *testing.T) {
	t.Parallel()
	server := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=1"))
	s := open(t, server.DSN("losses"))
	if losses := s.About().Warnings; len(losses) != 1 || !strings.Contains(losses[0], "innodb_flush_log_at_trx_commit is 2") {
		t.Errorf("%q", losses)
	}
}

// TestStops: a node of Galera with one thread that applies what others have committed is warned of, and nothing else is.
func TestStops(t *testing.T) {
	for _, c := range []struct {
		threads string
		cluster bool
		want    int
	}{{"1", true, 1}, {"1", false, 0}, {"4", true, 0}, {"", true, 0}} {
		is := map[string]string{"wsrep_slave_threads": c.threads}
		if stops := stopsOf(is, c.cluster); len(stops) != c.want || c.want > 0 && !strings.Contains(stops[0], "wsrep_slave_threads is 1") {
			t.Errorf("%+v: %q", c, stops)
		}
	}
}
