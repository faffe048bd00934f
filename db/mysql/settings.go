package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
)

// settingsSQL reads the settings that decide how a store uses the database, whether acknowledged commits survive, and
// whether the next one is answered.
const settingsSQL = `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_slave_threads', 'group_replication_group_name',
	'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'innodb_flush_method', 'log_bin', 'sync_binlog', 'binlog_storage_engine')`

// settings returns the settings of settingsSQL that the database has, in capitals.
func settings(ctx context.Context, conn driver.QueryerContext) (is map[string]string, err error) {
	rows, err := conn.QueryContext(ctx, settingsSQL, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	is = make(map[string]string)
	for row := make([]driver.Value, 2); ; {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return is, nil
		case err != nil:
			return nil, err
		}
		is[fmt.Sprintf("%s", row[0])] = strings.ToUpper(fmt.Sprintf("%s", row[1]))
	}
}

// look inspects a new connection's server. A database that restarts with other settings, under a running server, may
// have joined a cluster, or dropped its binary log: the store is as careful as any connection so far has required.
func (s *Store) look(ctx context.Context, conn driver.QueryerContext) error {
	is, err := settings(ctx, conn)
	if err != nil {
		return err
	}
	s.note(is)
	return nil
}

func (s *Store) note(is map[string]string) {
	cluster, group := clusterOf(is)
	if cluster {
		s.cluster.Store(true)
	}
	if group {
		s.group.Store(true)
	}
	if showsEarly(is, cluster) {
		s.barriers.needed.Store(true)
	}
}

// clusterOf reports whether the database is a node of a cluster with several writing nodes (Galera, Group Replication),
// and whether it is a member of a group.
func clusterOf(is map[string]string) (cluster, group bool) {
	group = is["group_replication_group_name"] != ""
	return group || is["wsrep_on"] == "ON", group
}

// packets reports whether several statements may go in one packet: see script.
func (s *Store) packets() bool { return !s.cluster.Load() }
