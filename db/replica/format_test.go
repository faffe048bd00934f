package replica_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/db/replica/state"
)

// TestNewFormat: the servers of a cluster use a newer format once all of them have known it for a while. From then on a server that does not
// know it does not start, whether it finds the format in its own files, in the log, or in another server's snapshot.
func TestNewFormat(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		uses := func(want string) {
			c.Helper()
			for _, s := range c.servers {
				if got := s.store.About().Version; got != "record format "+want {
					c.Errorf("server %d uses %s, want %s", s.n, got, want)
				}
			}
		}
		// pass lets time pass. The servers announce themselves.
		pass := func() {
			defer c.servers[0].beats()()
			for n := range 9 {
				for _, s := range c.servers {
					if err := s.store.Announce(c.Context(), db.Member{Name: fmt.Sprint("server-", s.n)}, false); err != nil {
						c.Fatal(err)
					}
				}
				c.servers[0].take(fmt.Sprint("beat", n))
				time.Sleep(20 * time.Second)
			}
		}
		restart := func(s *server, format uint64) error {
			s.stop(false)
			s.format = format
			return s.open()
		}
		uses("1")
		for _, s := range c.servers[1:] {
			if err := restart(s, 2); err != nil {
				c.Fatal(err)
			}
		}
		pass()
		uses("1")
		if err := restart(c.servers[0], 3); err != nil {
			c.Fatal(err)
		}
		pass()
		uses("2")
		refuses := func(what string, err error) {
			c.Helper()
			if !errors.Is(err, state.ErrNewer) || !strings.Contains(err.Error(), "the cluster uses a newer format: 2, and this locket knows up to 1") {
				c.Errorf("%s: %v", what, err)
			}
		}
		refuses("in its log", restart(c.servers[2], 1))
		if err := restart(c.servers[2], 2); err != nil {
			c.Fatal(err)
		}
		if err := c.servers[2].store.Snapshot(); err != nil {
			c.Fatal(err)
		}
		refuses("in its snapshot", restart(c.servers[2], 1))
		empty := c.server()
		empty.format = 1
		empty.catchUp(c)
		refuses("in another server's snapshot", empty.open())
		c.servers = c.servers[:2]
		c.same()
	})
}

// TestFinalize: an operator has the servers of an idle cluster use a newer format before its time. That is refused while a server does not
// know the format.
func TestFinalize(t *testing.T) {
	inCluster(t, 3, func(c *cluster) {
		restart := func(s *server, format uint64) {
			s.stop(false)
			s.format = format
			s.start()
		}
		announce := func() {
			for _, s := range c.servers {
				if err := s.store.Announce(c.Context(), db.Member{Name: fmt.Sprint("server-", s.n), Host: "host"}, false); err != nil {
					c.Fatal(err)
				}
			}
		}
		log := c.log.Open()
		finalize := func() error {
			ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
			defer cancel()
			announce()
			f, err := replica.ReadFormats(ctx, log)
			if err != nil {
				return err
			}
			announcing := make(chan struct{})
			go func() {
				defer close(announcing)
				for ctx.Err() == nil {
					time.Sleep(time.Second) // real time: none, clusters run in bubbles
					if ctx.Err() == nil {
						announce()
					}
				}
			}()
			err = f.Finalize(ctx, log)
			cancel()
			<-announcing
			return err
		}
		if err := finalize(); err != nil {
			c.Errorf("without a newer format: %v", err)
		}
		restart(c.servers[0], 2)
		restart(c.servers[1], 3)
		if err := finalize(); !errors.Is(err, replica.ErrNotKnown) || !strings.Contains(err.Error(), ", 3: server server-2 on \"host\"") {
			c.Errorf("while a server does not know it: %v", err)
		}
		restart(c.servers[2], 2)
		announce()
		if f, err := replica.ReadFormats(c.Context(), log); err != nil || f.Used != 1 || f.Newest != 2 || len(f.Servers) != 3 {
			c.Errorf("the formats are %+v, %v", f, err)
		}
		if err := finalize(); err != nil {
			c.Errorf("when all know it: %v", err)
		}
		c.same()
		for _, s := range c.servers {
			if got := s.store.About().Version; got != "record format 2" {
				c.Errorf("server %d uses %s", s.n, got)
			}
		}
		if left, err := log.Announced(c.Context()); err != nil || len(left) != 3 {
			c.Errorf("the request is left: %v, %v", left, err)
		}
	})
}

// TestFinalizeTogether: of three operators who finalize at the same time one gives up, one asks for the newest format, and one for the format
// that was the newest one before. Each gets a true answer.
func TestFinalizeTogether(t *testing.T) {
	inCluster(t, 1, func(c *cluster) {
		s, log := c.servers[0], c.log.Open()
		known := func(format uint64) replica.Formats {
			s.stop(false)
			s.format = format
			s.start()
			err := s.store.Announce(c.Context(), db.Member{Name: "server"}, false)
			f, unread := replica.ReadFormats(c.Context(), log)
			if err := errors.Join(err, unread); err != nil {
				c.Fatal(err)
			}
			return f
		}
		before, now := known(2), known(3)
		finalize := func(f replica.Formats, wait time.Duration) <-chan error {
			answer := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(c.Context(), wait)
				defer cancel()
				answer <- f.Finalize(ctx, log)
			}()
			return answer
		}
		impatient := finalize(now, 100*time.Millisecond)
		newest, older := finalize(now, time.Minute), finalize(before, time.Minute)
		if err := <-impatient; !errors.Is(err, db.ErrUnavailable) {
			c.Errorf("the operator who gives up gets %v", err)
		}
		for range 20 {
			time.Sleep(time.Second) // real time: none, clusters run in bubbles
			if err := s.store.Announce(c.Context(), db.Member{Name: "server"}, false); err != nil {
				c.Fatal(err)
			}
		}
		if err := errors.Join(<-newest, <-older); err != nil || s.store.About().Version != "record format 3" {
			c.Errorf("the others get %v, the server uses %s", err, s.store.About().Version)
		}
		if left, err := log.Announced(c.Context()); err != nil || len(left) != 1 {
			c.Errorf("a request is left: %v, %v", left, err)
		}
	})
}
