// Package serve runs an HTTP server for the Run of an ifrit runner.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Until closes ready and serves a listener until a signal. Then running requests may finish; connections that need more than timeout are
// closed.
func Until(signals <-chan os.Signal, ready chan<- struct{}, server *http.Server, listener net.Listener, timeout time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	close(ready)

	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP at %s: %w", listener.Addr(), err)
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return nil
}
