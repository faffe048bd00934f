package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/locket-service/locket/fixtures"
)

// lab is what the measurements need: the programs, the databases, a folder.
type lab struct {
	targets  []string
	folder   string
	dsn      string
	database *fixtures.MariaDB
	runs     int
}

// newLab prepares for the targets. A new database is warmed up for so long.
func newLab(dsn string, targets []string, warm time.Duration) (_ *lab, err error) {
	l := &lab{targets: targets, dsn: dsn}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.folder, err = os.MkdirTemp("", "locket-bench-"); err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(l.folder, "locket"), "github.com/locket-service/locket/cmd/locket")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build locket: %w", err)
	}
	if l.dsn == "" && (slices.Contains(targets, "mariadb") || slices.Contains(targets, "single")) {
		if l.database, err = fixtures.StartMariaDB(); err != nil {
			return nil, err
		}
		l.dsn = l.database.DSN("")
	}
	return l, l.warmUp(warm)
}

func (l *lab) close() {
	fixtures.Shutdown()
	_ = os.RemoveAll(l.folder)
}

// warmUp writes for a while to a database server that is new, until its redo log has been
// written all over once. A server that has been in use for a quarter of an hour is past
// that, and before it is, each commit is slower by the allocation of the file's blocks.
// A short run has less of it.
func (l *lab) warmUp(duration time.Duration) error {
	if l.database == nil || duration == 0 {
		return nil
	}
	_, err := l.measure("mariadb", 256, 0, duration)
	return err
}

// measure loads a target with acquire and release.
func (l *lab) measure(target string, callers, connections int, duration time.Duration) (result sample, err error) {
	server, err := l.start(target)
	if err != nil {
		return result, err
	}
	defer server.stop()
	err = child(&result, "load", "-address", server.grpc, "-callers", strconv.Itoa(callers),
		"-connections", strconv.Itoa(connections), "-duration", duration.String())
	return result, err
}

// child plays a role in a process of its own, which prints its result as JSON.
func child(result any, role string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command(self, append([]string{role}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	return json.Unmarshal(out.Bytes(), result)
}

// server is a target that runs.
type server struct {
	grpc, http, ops string // where it listens; ops is for Locket alone
	cmd             *exec.Cmd
	cleanUp         func()
}

// start starts a target on a fresh database.
func (l *lab) start(target string) (*server, error) {
	l.runs++
	s := &server{}
	var err error
	if s.grpc, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.http, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.cmd, s.cleanUp, err = l.command(target, s.grpc, s.http); err != nil {
		return nil, err
	}
	if s.cmd.Path == filepath.Join(l.folder, "locket") {
		if s.ops, err = freeAddress(); err != nil {
			return nil, err
		}
		s.cmd.Args = append(s.cmd.Args, "--ops-address", s.ops)
	}
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.cleanUp()
		return nil, err
	}
	if err := waitFor(s.grpc); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	s.cleanUp()
}

// command returns how to start a target, and what to do when it has ended.
func (l *lab) command(target, grpc, http string) (_ *exec.Cmd, cleanUp func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	locket := func(database string) *exec.Cmd {
		return exec.Command(filepath.Join(l.folder, "locket"), "server", "--grpc-address", grpc,
			"--http-address", http, "--log-level", "error", "--database", database)
	}
	switch target {
	case "echo":
		return exec.Command(self, "serve-echo", grpc), func() {}, nil
	case "raft":
		folder := filepath.Join(l.folder, fmt.Sprintf("run%d", l.runs))
		return locket("raft:" + folder), func() { _ = os.RemoveAll(folder) }, nil
	case "mariadb", "single":
		dsn, drop, err := l.freshDatabase()
		if err != nil {
			return nil, nil, err
		}
		if target == "single" {
			return exec.Command(self, "serve-single", grpc, dsn), drop, nil
		}
		return locket("mysql:" + dsn), drop, nil
	default:
		return nil, nil, fmt.Errorf("unknown target %q; there are echo, raft, mariadb, single", target)
	}
}

func (l *lab) freshDatabase() (dsn string, drop func(), err error) {
	config, err := mysql.ParseDSN(l.dsn)
	if err != nil {
		return "", nil, err
	}
	config.DBName = ""
	server, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("locket_bench_%d_%d", os.Getpid(), l.runs)
	if _, err := server.Exec("CREATE DATABASE " + name); err != nil {
		return "", nil, err
	}
	config.DBName = name
	return config.FormatDSN(), func() {
		_, _ = server.Exec("DROP DATABASE " + name)
		_ = server.Close()
	}, nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

// waitFor waits until somebody listens.
func waitFor(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody listens at %s: %w", strings.TrimSpace(address), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
