package clientcredentials

import "time"

// WaitFor changes how long a request to the provider may take.
func (s *Source) WaitFor(timeout time.Duration) { s.timeout, s.client.Timeout = timeout, timeout }
