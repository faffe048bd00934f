package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

// lab holds the programs, the databases and the folder of the measurements.
type lab struct {
	options
	folder string
	runs   int
	full   string // the data folder with a million claims, "" before it is filled
	// profiles are files of processor profiles of servers, recorded for -profile.
	profiles []string
}

func newLab(o options) (_ *lab, err error) {
	l := &lab{options: o}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.folder, err = os.MkdirTemp(o.folder, "locket-bench-"); err != nil {
		return nil, err
	}
	if l.folder, err = filepath.Abs(l.folder); err != nil {
		return nil, err
	}
	return l, l.build("locket", "github.com/locket-service/locket", "./cmd/locket")
}

// close leaves a private MariaDB to fixtures.Shutdown.
func (l *lab) close() { _ = os.RemoveAll(l.folder) }

// build builds a program in a module.
func (l *lab) build(name, module, pkg string) error {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("the module %s is not here: %w", module, err)
	}
	// Unlike go build, go run keeps the program in Go's cache.
	args := []string{"run", "-C", strings.TrimSpace(string(folder)), "-exec", "cp"}
	if l.quick { // the compiler's profile would only take time
		args = append(args, "-pgo=off")
	}
	build := exec.Command("go", append(args, pkg, l.program(name))...)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	return nil
}

func (l *lab) program(name string) string { return filepath.Join(l.folder, name) }

// zookeeperJar is its path in Debian's package.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// installed reports whether a program is installed. etcd's program and the load for servers with other protocols are
// built.
func (l *lab) installed(name string) bool {
	var err error
	switch name {
	case "redis":
		_, err = exec.LookPath("redis-server")
	case "mariadb":
		if l.dsn == "" {
			_, err = exec.LookPath("mariadbd")
		}
	case "zookeeper":
		_, missing := os.Stat(zookeeperJar)
		_, noJava := exec.LookPath("java")
		err = errors.Join(missing, noJava, l.buildOnce("load-peers", "./peers"))
	case "etcd":
		err = errors.Join(l.buildOnce("etcd", "go.etcd.io/etcd/server/v3"), l.buildOnce("load-peers", "./peers"))
	}
	return err == nil
}

// buildOnce builds a program in the module of the benchmark, if that has not been done.
func (l *lab) buildOnce(name, pkg string) error {
	if _, err := os.Stat(l.program(name)); err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "building %s\n", name)
	return l.build(name, "github.com/locket-service/locket/bench", pkg)
}

// prepare starts the database server of the measurements. It writes to a new one until the whole redo log has been
// written once, because before that the allocation of the file's blocks makes each commit slower.
func (l *lab) prepare(selected []measurement) error {
	if l.dsn != "" || !slices.ContainsFunc(selected, func(m measurement) bool { return m.needs == "mariadb" }) {
		return nil
	}
	database, err := fixtures.StartMariaDB()
	if err != nil {
		return err
	}
	if l.dsn = database.DSN(""); l.size.warmUp == 0 {
		return nil
	}
	fmt.Fprintf(os.Stderr, "writing to the new MariaDB for %s\n", l.size.warmUp)
	_, err = l.load("mariadb", "load-unary", 256, l.size.warmUp)
	return err
}

// load returns the function that measures a target with a load.
func load(target, role string, callers int) func(*lab) (result, error) {
	return func(l *lab) (result, error) { return l.load(target, role, callers, l.duration) }
}

func (l *lab) load(target, role string, callers int, duration time.Duration) (result, error) {
	server, err := l.start(target, "")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	found, err := l.drive(role, callers, duration, server)
	return found, errors.Join(err, server.recorded())
}

// drive loads servers from another process.
func (l *lab) drive(role string, callers int, duration time.Duration, servers ...*server) (found result, err error) {
	shared := connections
	if len(servers) > 1 {
		shared = 2 * len(servers)
	}
	return l.run(role, servers, "-callers", strconv.Itoa(callers), "-connections", strconv.Itoa(min(shared, callers)), "-duration", duration.String())
}

// run runs a role with servers in another process.
func (l *lab) run(role string, servers []*server, args ...string) (found result, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if roles[role] == nil { // needed by the clients of other servers
		program = l.program("load-peers")
	}
	var addresses list
	for _, s := range servers {
		addresses = append(addresses, s.address)
	}
	err = child(&found, program, append([]string{role, "-address", addresses.String(), "-pid", pids(servers...)}, args...)...)
	return found, err
}

// pids returns the ids of servers' processes, for a flag.
func pids(servers ...*server) string {
	var all list
	for _, s := range servers {
		all = append(all, strconv.Itoa(s.cmd.Process.Pid))
	}
	return all.String()
}

// child runs a program in a role, which prints its result as JSON.
func child(result any, program string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return err
	}
	return json.Unmarshal(out.Bytes(), result)
}

// server is a running target.
type server struct {
	target    string
	address   string // of gRPC, or of the other protocol
	http, ops string // only Locket has these
	data      string // the folder, of a node of an ensemble
	cmd       *exec.Cmd
	cleanUp   func()
	output    *fixtures.Buffer
	began     time.Time     // when the process was started
	took      time.Duration // from then until it was ready
	recorded  func() error  // waits until the server's processor profile is recorded, if that was requested
}

// start starts a target, on an empty folder or database unless Locket's data is given.
func (l *lab) start(target, data string) (_ *server, err error) {
	s, err := newServer(target)
	if err != nil {
		return nil, err
	}
	l.runs++
	cmd, err := l.command(s, target, data)
	if err == nil {
		err = s.start(cmd)
	}
	if err == nil {
		err = s.await()
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	l.recordAll(s)
	return s, nil
}

// newServer returns a server of a target that does not run, with addresses.
func newServer(target string) (s *server, err error) {
	s = &server{target: target, cleanUp: func() {}, recorded: func() error { return nil }}
	for _, address := range []*string{&s.address, &s.http, &s.ops} {
		if *address, err = fixtures.FreeAddress(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// start starts the server's process. It must not run.
func (s *server) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.output = &fixtures.Buffer{}
	cmd.Stdout, cmd.Stderr = s.output, s.output
	s.began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

// again starts the process again after its end.
func (s *server) again() error {
	_ = s.cmd.Wait() // an error says how it ended
	return s.start(exec.Command(s.cmd.Path, s.cmd.Args[1:]...))
}

// await waits until the server answers.
func (s *server) await() error {
	ready := listens(s.address)
	switch s.target {
	case "locket", "mariadb", "embedded":
		ready = answers("http://" + s.ops + "/readyz")
	case "zookeeper": // it listens before it serves
		ready = serves(s.address)
	}
	if err := await(ready); err != nil {
		return fmt.Errorf("%s does not answer: %w\n%s", s.target, err, s.output)
	}
	s.took = time.Since(s.began)
	return nil
}

func (s *server) stop() {
	defer s.cleanUp()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	ended := time.AfterFunc(30*time.Second, func() { _ = s.cmd.Process.Kill() })
	_ = s.cmd.Wait()
	ended.Stop()
}

// command returns the command that starts a target, and sets what to do when it has ended.
func (l *lab) command(s *server, target, data string) (*exec.Cmd, error) {
	if data == "" {
		data = filepath.Join(l.folder, fmt.Sprint("run", l.runs))
		s.cleanUp = func() { _ = os.RemoveAll(data) }
	}
	host, port, _ := net.SplitHostPort(s.address)
	switch target {
	case "echo":
		self, err := os.Executable()
		return exec.Command(self, "serve-echo", s.address), err
	case "locket":
		return l.locket(s, "--log-level", "error", "--data", data), nil
	case "mariadb":
		dsn, drop, err := l.freshDatabase()
		if drop != nil {
			s.cleanUp = drop
		}
		return l.locket(s, "--log-level", "error", "--database", "mysql:"+dsn), err
	case "redis":
		return exec.Command("redis-server", "--bind", host, "--port", port, "--dir", data, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always"), os.Mkdir(data, 0o700)
	case "etcd":
		return l.etcdMember(s, "m0", data, "m0=http://"+s.http), nil
	case "zookeeper":
		config := filepath.Join(data, "zoo.cfg")
		err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(config, []byte(zookeeperConfig(s, data)), 0o600))
		return zookeeper(config), err
	default:
		return nil, fmt.Errorf("unknown target %q", target)
	}
}

// locket returns a command that starts a server of Locket.
func (l *lab) locket(s *server, args ...string) *exec.Cmd {
	return exec.Command(l.program("locket"), append([]string{"server", "--grpc-address", s.address, "--http-address", s.http, "--ops-address", s.ops}, args...)...)
}

func zookeeperConfig(s *server, data string) string {
	host, port, _ := net.SplitHostPort(s.address)
	return fmt.Sprintf("dataDir=%s\nclientPort=%s\nclientPortAddress=%s\ntickTime=2000\nadmin.enableServer=false\nmaxClientCnxns=0\n", data, port, host)
}

func zookeeper(config string) *exec.Cmd {
	return exec.Command("java", "-Xmx1g", "-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
}

func (l *lab) etcd(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(l.folder, "etcd"), args...)
}

// etcdMember returns a command that starts a member of an etcd.
func (l *lab) etcdMember(s *server, name, data, members string) *exec.Cmd {
	client, peer := "http://"+s.address, "http://"+s.http
	return l.etcd("--name", name, "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", members, "--log-level", "error")
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
	drop = func() {
		_, _ = server.Exec("DROP DATABASE IF EXISTS " + name)
		_ = server.Close()
	}
	_, err = server.Exec("CREATE DATABASE " + name)
	config.DBName = name
	return config.FormatDSN(), drop, err
}

// listens reports whether a server listens at an address.
func listens(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// serves reports whether a ZooKeeper serves at an address.
func serves(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		status, err := zookeeperStatus(ctx, address)
		if err == nil && !strings.Contains(status, "Mode: ") {
			err = fmt.Errorf("its status is %q", status)
		}
		return err
	}
}

func zookeeperStatus(ctx context.Context, address string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	status, err := io.ReadAll(conn)
	return string(status), err
}

// answers reports whether a page can be read.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	}
}

// await tries again until it succeeds, for a minute.
func await(try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
