package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clusterMeasurements are of three nodes. Three servers of Locket share a log in three nodes of etcd: beside them, or inside them
// (embedded).
var clusterMeasurements = []measurement{
	{name: "locket3-session-256", run: three("locket", "load-session", 256, false), needs: "etcd"},
	{name: "locket3-256", run: three("locket", "load-unary", 256, false), needs: "etcd"},
	{name: "embedded3-256", run: three("embedded", "load-unary", 256, false)},
	{name: "locket3-at-256", run: three("locket", "load-unary", 256, true), needs: "etcd"},
	{name: "etcd3-256", run: three("etcd", "etcd", 256, false), needs: "etcd"},
	{name: "etcd3-at-256", run: three("etcd", "etcd", 256, true), needs: "etcd"},
	{name: "zookeeper3-256", run: three("zookeeper", "zookeeper", 256, false), needs: "zookeeper"},
	{name: "locket3-64", run: three("locket", "load-unary", 64, false), needs: "etcd"},
	{name: "embedded3-64", run: three("embedded", "load-unary", 64, false)},
	{name: "locket3-at-64", run: three("locket", "load-unary", 64, true), needs: "etcd"},
	{name: "etcd3-64", run: three("etcd", "etcd", 64, false), needs: "etcd"},
	{name: "etcd3-at-64", run: three("etcd", "etcd", 64, true), needs: "etcd"},
	{name: "zookeeper3-64", run: three("zookeeper", "zookeeper", 64, false), needs: "zookeeper"},
	{name: "locket3-1", run: three("locket", "load-unary", 1, false), needs: "etcd"},
	{name: "embedded3-1", run: three("embedded", "load-unary", 1, false)},
	{name: "locket3-at-1", run: three("locket", "load-unary", 1, true), needs: "etcd"},
	{name: "etcd3-1", run: three("etcd", "etcd", 1, false), needs: "etcd"},
	{name: "etcd3-at-1", run: three("etcd", "etcd", 1, true), needs: "etcd"},
	{name: "zookeeper3-1", run: three("zookeeper", "zookeeper", 1, false), needs: "zookeeper"},
	{name: "locket3-pass", run: (*lab).pass, needs: "etcd"},
	{name: "locket3-idle", run: func(l *lab) (result, error) { return l.idleThree(0) }, needs: "etcd"},
	{name: "locket3-idle-sessions", run: func(l *lab) (result, error) { return l.idleThree(l.size.some) }, needs: "etcd"},
	{name: "embedded3-kill", run: outages("embedded", syscall.SIGKILL), once: true},
	{name: "embedded3-stop", run: outages("embedded", syscall.SIGTERM), once: true},
	{name: "locket3-kill", run: outages("locket", syscall.SIGKILL), needs: "etcd", once: true},
	{name: "locket3-stop", run: outages("locket", syscall.SIGTERM), needs: "etcd", once: true},
	{name: "locket3-million", run: (*lab).millionThree, needs: "etcd", once: true},
	{name: "locket3-catch-up", run: (*lab).catchUp, needs: "etcd", once: true},
}

var clusterRows = func() (rows []row) {
	for _, callers := range []string{"256", "64", "1"} {
		spread, at := figure{"locket3-" + callers, rate}, figure{"locket3-at-" + callers, rate}
		rows = append(rows,
			row{"spread-" + callers + "-etcd", loadOf(callers), spread, "three of etcd", figure{"etcd3-" + callers, rate}},
			row{"spread-" + callers + "-zookeeper", loadOf(callers), spread, "three of ZooKeeper", figure{"zookeeper3-" + callers, rate}},
			row{"embedded-" + callers + "-etcd", loadOf(callers) + ", etcd inside", figure{"embedded3-" + callers, rate}, "three of etcd", figure{"etcd3-" + callers, rate}},
			row{"leader-" + callers + "-etcd", loadOf(callers) + ", at the leader", at, "etcd's leader", figure{"etcd3-at-" + callers, rate}},
		)
	}
	return append(rows,
		row{"session-256-etcd", "Streams of sessions, 256 in flight", figure{"locket3-session-256", rate}, "three of etcd", figure{"etcd3-256", rate}},
		row{"pass-50", "A hand-off between servers that do not decide, half of them within", figure{"locket3-pass", p50}, "", figure{}},
		row{"pass-99", "A hand-off between servers that do not decide, 99 % within", figure{"locket3-pass", p99}, "", figure{}},
		row{"kill", "The slowest call after kill -9 of the server that decides, median", figure{"locket3-kill", slowest}, "", figure{}},
		row{"kill-worst", "The slowest call after kill -9 of the server that decides, worst", figure{"locket3-kill", worst}, "", figure{}},
		row{"stop", "The slowest call after an orderly stop of it, median", figure{"locket3-stop", slowest}, "", figure{}},
		row{"stop-worst", "The slowest call after an orderly stop of it, worst", figure{"locket3-stop", worst}, "", figure{}},
		row{"embedded-kill", "The slowest call after kill -9, etcd inside, median", figure{"embedded3-kill", slowest}, "", figure{}},
		row{"embedded-kill-worst", "The slowest call after kill -9, etcd inside, worst", figure{"embedded3-kill", worst}, "", figure{}},
		row{"embedded-stop", "The slowest call after an orderly stop, etcd inside, median", figure{"embedded3-stop", slowest}, "", figure{}},
		row{"embedded-stop-worst", "The slowest call after an orderly stop, etcd inside, worst", figure{"embedded3-stop", worst}, "", figure{}},
		row{"catch-up", "Start of a server that missed 100,000 records", figure{"locket3-catch-up", start}, "", figure{}},
		row{"million-pause", "A million claims, 16 callers: the slowest call while servers write snapshots", figure{"locket3-million", slowest}, "other times", figure{"locket3-million", worst}},
		row{"million-snapshot", "A million claims: the slowest snapshot", figure{"locket3-million", snapshotTime}, "", figure{}},
		row{"million-memory", "A million claims: memory of a server, after that", figure{"locket3-million", memory}, "", figure{}},
		row{"million-join", "A million claims: start of a server with an empty folder", figure{"locket3-million", start}, "", figure{}},
		row{"idle", "Three servers without leases: processor", figure{"locket3-idle", busy}, "their etcd", figure{"locket3-idle", busyBeside}},
		row{"idle-sessions", "1,000 sessions with 10,000 locks that do nothing: processor", figure{"locket3-idle-sessions", busy}, "their etcd", figure{"locket3-idle-sessions", busyBeside}},
	)
}()

// three returns the function that measures three nodes of a target with callers of all nodes, or of the leader alone. One
// caller of all nodes is a follower's.
func three(target, role string, callers int, atLeader bool) func(*lab) (result, error) {
	return func(l *lab) (result, error) {
		e, err := l.startThree(target)
		if err != nil {
			return nil, err
		}
		defer e.stop()
		called := e.nodes
		if atLeader {
			called = called[nodes-1:]
		}
		l.recordAll(e.nodes...)
		found, err := l.drive(role, callers, l.duration, called...)
		for _, s := range e.nodes {
			err = errors.Join(err, s.recorded())
		}
		return found, err
	}
}

// pass measures hand-offs between two servers that do not decide.
func (l *lab) pass() (result, error) {
	e, err := l.startThree("locket")
	if err != nil {
		return nil, err
	}
	defer e.stop()
	return l.drive("load-pass", 2, l.duration, e.followers()...)
}

// idleThree measures three idle servers, and the etcd beside them.
func (l *lab) idleThree(sessions int) (result, error) {
	e, err := l.startThree("locket")
	if err != nil {
		return nil, err
	}
	defer e.stop()
	return l.run("load-idle", e.nodes, "-beside", pids(e.beside.nodes...), "-callers", strconv.Itoa(sessions), "-connections", "12", "-duration", l.size.idle.String())
}

// outages returns the function that ends the server that decides by a signal, again and again, while the other servers have
// callers.
func outages(target string, signal syscall.Signal) func(*lab) (result, error) {
	return func(l *lab) (result, error) {
		e, err := l.startThree(target)
		if err != nil {
			return nil, err
		}
		defer e.stop()
		var all []float64
		for range l.faults {
			victim := e.leader()
			found, err := l.run("load-outage", e.followers(), "-victim", pids(victim), "-signal", strconv.Itoa(int(signal)),
				"-callers", "16", "-connections", "4", "-duration", l.size.outage.String())
			if err != nil {
				return nil, err
			}
			all = append(all, found[slowest])
			if err := victim.again(); err != nil {
				return nil, err
			}
			if err := victim.await(); err != nil {
				return nil, err
			}
			if err := e.findLeader(); err != nil {
				return nil, err
			}
		}
		return result{slowest: median(all), worst: slices.Max(all)}, nil
	}
}

// catchUp measures the start of a server that was killed, from the start of its process to the first lock through it.
func (l *lab) catchUp() (result, error) {
	e, err := l.startThree("locket")
	if err != nil {
		return nil, err
	}
	defer e.stop()
	late := e.nodes[0]
	if err := late.cmd.Process.Kill(); err != nil {
		return nil, err
	}
	first, err := e.revision()
	for last := first; err == nil && last < first+l.size.missed; last, err = e.revision() {
		fmt.Fprintf(os.Stderr, "%d of %d records\n", last-first, l.size.missed)
		if _, err := l.drive("load-unary", 8, max(l.duration, time.Second), e.nodes[1:]...); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	if err := late.again(); err != nil {
		return nil, err
	}
	if err := late.await(); err != nil {
		return nil, err
	}
	if err := firstLock(late.address); err != nil {
		return nil, err
	}
	return result{start: time.Since(late.began).Seconds()}, nil
}

// revision returns how many records etcd has had. Beats are few beside them.
func (e *ensemble) revision() (int, error) {
	const name = "\netcd_debugging_mvcc_current_revision "
	text, err := get(context.Background(), "http://"+e.beside.leader().address+"/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(text, name)
	if !found {
		return 0, fmt.Errorf("etcd has no metric %s", name)
	}
	number, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(number, 64)
	return int(value), err
}
