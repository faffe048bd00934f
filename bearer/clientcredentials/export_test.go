package clientcredentials

import (
	"context"
	"time"
)

// WaitFor changes how long a request to the provider may take.
func (s *Source) WaitFor(timeout time.Duration) { s.timeout, s.client.Timeout = timeout, timeout }

// ReadSecret reads the secret, which a request does only for a second.
func (s *Source) ReadSecret(ctx context.Context) error {
	_, err := s.secret.Fresh(ctx)
	return err
}

// SetBack has passed what is left of the life of the access token, and the clock of the machine is set back by as much.
func (s *Source) SetBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now()
}
