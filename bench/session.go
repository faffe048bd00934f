package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
)

// loadSession is the role that sends commands over the streams of sessions, one stream for each connection.
func loadSession(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	var workers []worker
	for number, client := range clients {
		s, err := openStream(client, number, 3600, true)
		if err != nil {
			return err
		}
		p := &pipeline{stream: s, lanes: make([]lane, (f.callers+number)/len(clients)), sent: make(map[uint64]int)}
		workers = append(workers, p.run)
	}
	return f.drive(workers)
}

// stream is the stream of a session.
type stream struct {
	grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse]
	number   int
	sequence uint64
}

func openStream(client models.LocketClient, number int, ttl float64, batches bool) (*stream, error) {
	opened, err := client.Session(context.Background())
	if err != nil {
		return nil, err
	}
	s := &stream{BidiStreamingClient: opened, number: number}
	open := &models.OpenSession{Id: fmt.Sprintf("bench-session-%06d", number), Secret: "0123456789abcdef", Ttl: ttl, Batches: batches}
	if err := s.send(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}); err != nil {
		return nil, err
	}
	if response, err := s.Recv(); err != nil || response.GetOpened() == nil {
		return nil, fmt.Errorf("session %d is not opened: %v, %w", number, response, err)
	}
	return s, nil
}

func (s *stream) send(request *models.SessionRequest) error {
	s.sequence++
	request.Sequence = s.sequence
	return s.Send(request)
}

func lockRequest(key string) *models.SessionRequest {
	lock := &models.LockCommand{Resource: key, Value: "10.0.0.1:8080"}
	return &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: lock}}
}

func unlockRequest(key string) *models.SessionRequest {
	return &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: key}}}
}

// pipeline is a session's stream with pipelined commands: each lane locks and unlocks one resource after the other.
type pipeline struct {
	*stream
	lanes []lane
	sent  map[uint64]int // the lane of each unanswered command
}

type lane struct {
	round  int
	locked bool
	began  time.Time
}

// run is a worker. What it asks for at the same time goes in one message, as from package lock.
func (p *pipeline) run(end time.Time, took *histogram) error {
	var requests []*models.SessionRequest
	for i := range p.lanes {
		requests = append(requests, p.next(i))
	}
	for {
		if len(requests) > 0 {
			requests[0].More = requests[1:]
			if err := p.Send(requests[0]); err != nil {
				return err
			}
		}
		if len(p.sent) == 0 {
			return nil
		}
		first, err := p.Recv()
		if err != nil {
			return err
		}
		requests = nil
		now := time.Now()
		for _, response := range append([]*models.SessionResponse{first}, first.GetMore()...) {
			i, known := p.sent[response.GetSequence()]
			if !known || response.GetStatus() == nil {
				return fmt.Errorf("unexpected %v", response)
			}
			delete(p.sent, response.GetSequence())
			took.add(now.Sub(p.lanes[i].began))
			if p.lanes[i].locked = !p.lanes[i].locked; p.lanes[i].locked || now.Before(end) {
				requests = append(requests, p.next(i))
			}
		}
	}
}

// next returns the next command of a lane.
func (p *pipeline) next(i int) *models.SessionRequest {
	l := &p.lanes[i]
	if !l.locked {
		l.round++
	}
	key := fmt.Sprintf("bench/%d/%d/%d", p.number, i, l.round%names)
	l.began = time.Now()
	request := lockRequest(key)
	if l.locked {
		request = unlockRequest(key)
	}
	p.sequence++
	request.Sequence = p.sequence
	p.sent[p.sequence] = i
	return request
}

// loadHandOff is the role of callers that all wait for one lock, each with its own session: the holder releases it at
// once, and waits again.
func loadHandOff(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	var workers []worker
	for number := range f.callers {
		s, err := openStream(clients[number%len(clients)], number, 3600, false)
		if err != nil {
			return err
		}
		workers = append(workers, s.handOff)
	}
	return f.drive(workers)
}

// handOff is a worker; an operation is a grant to this session.
func (s *stream) handOff(end time.Time, took *histogram) error {
	for again := true; again; again = time.Now().Before(end) {
		begin := time.Now()
		if err := s.send(lockRequest("hand-off")); err != nil {
			return err
		}
		if err := s.until(models.Holding_HOLDING_HELD); err != nil {
			return err
		}
		took.add(time.Since(begin))
		if err := s.send(unlockRequest("hand-off")); err != nil {
			return err
		}
		if err := s.until(models.Holding_HOLDING_NONE); err != nil {
			return err
		}
	}
	return nil
}

// until receives until the session has this relation to the resource.
func (s *stream) until(want models.Holding) error {
	for {
		response, err := s.Recv()
		switch {
		case err != nil:
			return err
		case response.GetStatus() == nil:
			return fmt.Errorf("unexpected %v", response)
		case response.GetStatus().GetCurrent() == want:
			return nil
		}
	}
}
