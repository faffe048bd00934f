package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/models"
)

// idleTTL is the TTL of the sessions that do nothing, in seconds.
const idleTTL = 60

// shortIdle is a short run of idle.
var shortIdle = map[string]string{"sessions": "1000", "seconds": "10"}

// idle measures what sessions cost while nothing happens: statements and writes of the database in a
// second, and the memory of the server; beside a server on which somebody holds one lock.
func idle(args []string) error {
	flags := flag.NewFlagSet("idle", flag.ContinueOnError)
	sessions := flags.Int("sessions", 10_000, "how many sessions")
	locks := flags.Int("locks", 10, "how many locks each of them holds")
	seconds := flags.Float64("seconds", 30, "how long one measurement lasts")
	if _, err := parse(flags, args, shortIdle); err != nil {
		return err
	}
	lab, err := newLab("", []string{"mariadb"}, 0)
	if err != nil {
		return err
	}
	defer lab.close()
	server, err := lab.start("mariadb")
	if err != nil {
		return err
	}
	defer server.stop()
	pool, err := sql.Open("mysql", lab.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	load, err := startIdle(server.grpc)
	if err != nil {
		return err
	}
	defer load.stop()
	fmt.Println("| | writes/s | statements/s | memory in use by the server, MiB |")
	fmt.Println("| --- | ---: | ---: | ---: |")
	for _, step := range []struct {
		name            string
		sessions, locks int
	}{
		{"one lock", 1, 1},
		{fmt.Sprintf("%d sessions", *sessions), *sessions, 0},
		{fmt.Sprintf("%d sessions with %d locks", *sessions, *sessions**locks), *sessions, *locks},
	} {
		if err := load.reach(step.sessions, step.locks); err != nil {
			return err
		}
		if err := measureIdle(step.name, pool, server.ops, time.Duration(*seconds*float64(time.Second))); err != nil {
			return err
		}
	}
	return nil
}

// measureIdle prints a row.
func measureIdle(name string, pool *sql.DB, ops string, duration time.Duration) error {
	time.Sleep(3 * time.Second) // what the step did is over
	before, err := statements(pool)
	if err != nil {
		return err
	}
	time.Sleep(duration)
	after, err := statements(pool)
	if err != nil {
		return err
	}
	memory, err := live(ops)
	if err != nil {
		return err
	}
	per := func(n int) float64 { return float64(n) / duration.Seconds() }
	fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", name, per(after.writes-before.writes), per(after.all-before.all), float64(memory)/(1<<20))
	return nil
}

// counts of statements that a database server has carried out.
type statementCounts struct{ all, writes int }

func statements(pool *sql.DB) (c statementCounts, err error) {
	rows, err := pool.Query("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', 'Com_update', 'Com_update_multi', 'Com_delete', 'Com_delete_multi', 'Com_replace', 'Questions')")
	if err != nil {
		return c, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return c, err
		}
		if name == "Questions" {
			c.all = n
		} else {
			c.writes += n
		}
	}
	return c, rows.Err()
}

// live returns the bytes of memory that a server uses, in its heap after a collection and in its
// stacks.
func live(ops string) (bytes int, err error) {
	collect, err := http.Get("http://" + ops + "/debug/pprof/heap?gc=1")
	if err != nil {
		return 0, err
	}
	_ = collect.Body.Close()
	metrics, err := http.Get("http://" + ops + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = metrics.Body.Close() }()
	for lines := bufio.NewScanner(metrics.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name == "go_memstats_heap_alloc_bytes" || name == "go_memstats_stack_inuse_bytes" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			bytes += int(n)
		}
	}
	return bytes, nil
}

// idleLoad is the process with the clients.
type idleLoad struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startIdle(address string) (*idleLoad, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &idleLoad{cmd: exec.Command(self, "load-idle", address)}
	l.cmd.Stderr = os.Stderr
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = bufio.NewReader(out)
	return l, l.cmd.Start()
}

// reach has as many sessions hold as many locks each.
func (l *idleLoad) reach(sessions, locks int) error {
	if _, err := fmt.Fprintln(l.in, sessions, locks); err != nil {
		return err
	}
	_, err := l.out.ReadString('\n')
	return err
}

func (l *idleLoad) stop() {
	_ = l.in.Close()
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
}

// perConnection is how many sessions share a connection.
const perConnection = 1000

// loadIdle is the process whose sessions do nothing but send heartbeats. It reads how many there are to
// be, and how many locks each has to hold, and answers with a line.
func loadIdle(args []string) error {
	var all []*idleSession
	var conn *grpc.ClientConn
	for {
		var sessions, locks int
		if _, err := fmt.Scanln(&sessions, &locks); err != nil {
			return nil //nolint:nilerr // the end
		}
		for len(all) < sessions {
			if len(all)%perConnection == 0 {
				var err error
				if conn, err = grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
					return err
				}
			}
			s, err := openIdle(conn, len(all))
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		for _, s := range all {
			if err := s.lock(locks); err != nil {
				return err
			}
		}
		fmt.Println("done")
	}
}

// idleSession is a session that holds some locks, and sends heartbeats.
type idleSession struct {
	stream   grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse]
	number   int
	locks    int
	answers  chan *models.SessionResponse
	mu       sync.Mutex
	sequence uint64
}

func openIdle(conn *grpc.ClientConn, number int) (*idleSession, error) {
	stream, err := models.NewLocketClient(conn).Session(context.Background())
	if err != nil {
		return nil, err
	}
	s := &idleSession{stream: stream, number: number, answers: make(chan *models.SessionResponse, 1)}
	go s.receive()
	open := &models.OpenSession{Id: fmt.Sprintf("idle-session-%06d", number), Secret: "0123456789abcdef", Ttl: idleTTL}
	if err := s.send(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}); err != nil {
		return nil, err
	}
	if response := <-s.answers; response.GetOpened() == nil {
		return nil, fmt.Errorf("session %d: %v", number, response)
	}
	go s.beat()
	return s, nil
}

func (s *idleSession) receive() {
	for {
		response, err := s.stream.Recv()
		if err != nil {
			fmt.Fprintln(os.Stderr, "a session has ended:", err)
			close(s.answers)
			return
		}
		if response.GetHeartbeat() == nil {
			s.answers <- response
		}
	}
}

func (s *idleSession) send(request *models.SessionRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sequence++
	request.Sequence = s.sequence
	return s.stream.Send(request)
}

func (s *idleSession) beat() {
	time.Sleep(time.Duration(s.number%1000) * idleTTL * time.Second / 3000) // spread
	for s.send(&models.SessionRequest{Command: &models.SessionRequest_Heartbeat{Heartbeat: &models.Heartbeat{}}}) == nil {
		time.Sleep(idleTTL * time.Second / 3)
	}
}

// lock has the session hold so many locks.
func (s *idleSession) lock(locks int) error {
	from := s.locks
	for i := from; i < locks; i++ {
		lock := &models.LockCommand{Resource: fmt.Sprintf("idle/%d/%d", s.number, i)}
		if err := s.send(&models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: lock}}); err != nil {
			return err
		}
	}
	for s.locks < locks {
		if response := <-s.answers; response.GetStatus().GetCurrent() != models.Holding_HOLDING_HELD {
			return errors.New(response.String())
		}
		s.locks++
	}
	return nil
}
