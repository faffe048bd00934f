package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
)

// detectRisks reads the version of the database, and the settings that decide whether acknowledged commits survive, and
// whether the next one is answered.
func (s *Store) detectRisks(ctx context.Context) error {
	s.about.Engine = "mysql"
	if err := s.scanRow(ctx, s.control, "SELECT @@version", nil, &s.about.Version); err != nil {
		return err
	}
	return s.withRetry(ctx, s.control, func(conn *sql.Conn) error {
		return conn.Raw(func(conn any) error {
			is, err := settings(ctx, conn.(driver.QueryerContext))
			cluster, _ := clusterOf(is)
			s.about.Warnings = append(lossesOf(is, cluster), stopsOf(is, cluster)...)
			return err
		})
	})
}

// showsEarly reports whether a commit is visible before it is durable. With a binary log of its own, the database
// commits once that has the transaction; on a cluster the other nodes have it. If the redo log is not even written at a
// commit, nothing helps: lossesOf warns of that.
func showsEarly(is map[string]string, cluster bool) bool {
	ownLog := is["log_bin"] == "ON" && is["binlog_storage_engine"] != "INNODB"
	return !cluster && !ownLog && is["innodb_flush_log_at_trx_commit"] != "0"
}

// lossesOf returns warnings about settings that may lose commits. Settings that a database does not have are not in the
// map.
func lossesOf(is map[string]string, cluster bool) (losses []string) {
	other := func(name string, safe ...string) bool {
		value, known := is[name]
		return known && !slices.Contains(safe, value)
	}
	lost := "locks and claims that were acknowledged in the last second or so are lost, and may be granted again"
	if cluster {
		lost += "; on a cluster, when all nodes fail together"
	}
	switch {
	case other("innodb_flush_log_at_trx_commit", "1", "2", "3"):
		losses = append(losses, "innodb_flush_log_at_trx_commit is "+is["innodb_flush_log_at_trx_commit"]+", not 1: when the database's process or machine ends without warning, "+lost)
	case other("innodb_flush_log_at_trx_commit", "1", "3"):
		losses = append(losses, "innodb_flush_log_at_trx_commit is 2, not 1: when the database's machine loses its power, "+lost)
	}
	if is["log_bin"] == "ON" && other("sync_binlog", "1") {
		losses = append(losses, "sync_binlog is "+is["sync_binlog"]+", not 1, and the binary log is on: when the database's machine loses its power, what the log misses is rolled back at the restart: "+lost)
	}
	if other("innodb_doublewrite", "ON", "1", "DETECT_AND_RECOVER") {
		losses = append(losses, "innodb_doublewrite is "+is["innodb_doublewrite"]+": when the database's machine loses its power, a half-written page may make tables unreadable, with all locks and claims, unless the file system writes pages at once")
	}
	if other("innodb_flush_method", "FSYNC", "O_DSYNC", "O_DIRECT", "O_DIRECT_NO_FSYNC", "UNBUFFERED", "ASYNC_UNBUFFERED", "NORMAL", "") {
		losses = append(losses, "innodb_flush_method is "+is["innodb_flush_method"]+": when the database's machine loses its power, "+lost)
	}
	return losses
}

// stopsOf returns warnings about settings that may stop the database. If one thread applies the commits of other Galera
// nodes, MariaDB 10.11.19 can hang: a local transaction that had to be ordered behind did not end, and the thread
// waited forever for its row locks. That happened in one of ten simultaneous starts of servers at several nodes, and in
// none of 32 with four threads.
func stopsOf(is map[string]string, cluster bool) []string {
	if !cluster || is["wsrep_slave_threads"] != "1" {
		return nil
	}
	return []string{"wsrep_slave_threads is 1: a node of Galera may stand still for ever when servers at several nodes write the same row; set it to 4, say"}
}
