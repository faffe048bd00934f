package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"
)

// compareAndDelete releases a lock as the documentation of Redis says.
const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// loadRedis is the role of callers of Redis: SET NX PX, and a script that deletes what the caller has set. The callers
// of a connection pipeline their commands.
func loadRedis(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	var workers []worker
	for number := range f.connections {
		conn, err := net.Dial("tcp", f.addresses.of(number))
		if err != nil {
			return err
		}
		r := &redis{in: bufio.NewReader(conn), out: bufio.NewWriter(conn), number: number, lanes: make([]lane, f.callers/f.connections)}
		if r.script, err = r.load(); err != nil {
			return err
		}
		workers = append(workers, r.run)
	}
	return f.drive(workers)
}

// redis is a connection with pipelined commands; replies come in their order.
type redis struct {
	in     *bufio.Reader
	out    *bufio.Writer
	script string
	number int
	lanes  []lane
	sent   []int // the lanes of the unanswered commands
}

// command writes a command in Redis' protocol, RESP.
func (r *redis) command(words ...string) {
	fmt.Fprintf(r.out, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(r.out, "$%d\r\n%s\r\n", len(word), word)
	}
}

// reply reads a line. It flushes the written commands when no more replies are buffered, so that packets contain
// several commands.
func (r *redis) reply() (string, error) {
	if r.in.Buffered() == 0 {
		if err := r.out.Flush(); err != nil {
			return "", err
		}
	}
	line, err := r.in.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// load loads the script, and returns its hash.
func (r *redis) load() (string, error) {
	r.command("SCRIPT", "LOAD", compareAndDelete)
	if length, err := r.reply(); err != nil || length != "$40" {
		return "", fmt.Errorf("unexpected %q, %w", length, err)
	}
	return r.reply()
}

// run is a worker.
func (r *redis) run(end time.Time, took *histogram) error {
	for i := range r.lanes {
		r.next(i)
	}
	for len(r.sent) > 0 {
		reply, err := r.reply()
		if err != nil {
			return err
		}
		i := r.sent[0]
		r.sent = r.sent[1:]
		l := &r.lanes[i]
		if want := map[bool]string{false: "+OK", true: ":1"}[l.locked]; reply != want {
			return fmt.Errorf("unexpected %q, want %q", reply, want)
		}
		took.add(time.Since(l.began))
		if l.locked = !l.locked; !l.locked && !time.Now().Before(end) {
			continue
		}
		r.next(i)
	}
	return nil
}

// next sends the next command of a lane.
func (r *redis) next(i int) {
	l := &r.lanes[i]
	if !l.locked {
		l.round++
	}
	key, owner := fmt.Sprintf("bench/%d/%d/%d", r.number, i, l.round%names), fmt.Sprintf("caller-%d-%d", r.number, i)
	l.began = time.Now()
	r.sent = append(r.sent, i)
	if l.locked {
		r.command("EVALSHA", r.script, "1", key, owner)
	} else {
		r.command("SET", key, owner, "NX", "PX", "60000")
	}
}
