package robustness_test

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/history"
)

// tap writes down the openings and heartbeats of a session that a server has acknowledged, and the versions
// of the claims that wait: without the order in which they came there would be too many orders to try.
func (c *sessionClient) tap(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	return &tapped{ClientStream: stream, client: c, sent: make(map[uint64]int64)}, err
}

type tapped struct {
	grpc.ClientStream
	client *sessionClient
	mu     sync.Mutex
	sent   map[uint64]int64
}

func (s *tapped) SendMsg(m any) error {
	if request, ok := m.(*models.SessionRequest); ok {
		s.mu.Lock()
		s.sent[request.GetSequence()] = s.client.now()
		s.mu.Unlock()
	}
	return s.ClientStream.SendMsg(m)
}

func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	response, ok := m.(*models.SessionResponse)
	if err != nil || !ok {
		return err
	}
	s.mu.Lock()
	sent := s.sent[response.GetSequence()]
	s.mu.Unlock()
	switch status := response.GetStatus(); {
	case status.GetCurrent() == models.Holding_HOLDING_WAITING:
		s.client.joined.Store(status.GetResource(), status.GetVersion())
	case response.GetHeartbeat() != nil:
		s.client.op(sent, s.client.now(), history.Heartbeat(s.client.name, s.client.ttl), history.Output{})
	case response.GetOpened() != nil:
		s.client.streams.Add(1)
		if response.GetOpened().GetResumed() {
			s.client.resumed.Add(1)
		}
		s.client.op(sent, s.client.now(), history.Opened(s.client.name), history.Output{})
	}
	return nil
}
