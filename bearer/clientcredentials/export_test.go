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
