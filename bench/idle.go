package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/locket-service/locket/models"
)

const (
	// idleTTL is the TTL of the idle sessions, in seconds.
	idleTTL = 60
	// idleLocks is how many locks each of them holds.
	idleLocks = 10
)

// idle measures an idle server with sessions that hold locks and send heartbeats.
func (l *lab) idle(sessions int) (result, error) {
	s, err := l.start("locket", "")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	return l.run("load-idle", []*server{s}, "-callers", strconv.Itoa(sessions), "-connections", "10", "-duration", l.size.idle.String())
}

// loadIdle is the role of the idle sessions, which send only heartbeats. It watches the server meanwhile, and prints a
// result as JSON.
func loadIdle(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	for number := range f.callers {
		s, err := openStream(clients[number%len(clients)], number, idleTTL, false)
		if err != nil {
			return err
		}
		for i := range idleLocks {
			if err := s.send(lockRequest(fmt.Sprintf("idle/%d/%d", number, i))); err != nil {
				return err
			}
		}
		for range idleLocks {
			if err := s.until(models.Holding_HOLDING_HELD); err != nil {
				return err
			}
		}
		go s.beat()
	}
	time.Sleep(f.duration / 3) // until earlier changes have been written to disk
	return f.watch()
}

// beat sends heartbeats, and ignores the answers.
func (s *stream) beat() {
	go func() {
		for {
			if _, err := s.Recv(); err != nil {
				fmt.Fprintln(os.Stderr, "bench: a session has ended:", err)
				os.Exit(1)
			}
		}
	}()
	time.Sleep(time.Duration(s.number%1000) * idleTTL * time.Second / 3000) // spread
	for s.send(&models.SessionRequest{Command: &models.SessionRequest_Heartbeat{Heartbeat: &models.Heartbeat{}}}) == nil {
		time.Sleep(idleTTL * time.Second / 3)
	}
}
