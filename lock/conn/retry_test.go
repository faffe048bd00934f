package conn_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/locket-service/locket/lock/conn"
)

// TestTriedAgain: a server that cannot be reached is tried again after a second at most, as Dial says.
func TestTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := make(chan time.Time)
		refused := func(ctx context.Context, _ string) (net.Conn, error) {
			select {
			case attempts <- time.Now():
			case <-ctx.Done():
			}
			return nil, errors.New("refused")
		}
		c, err := conn.Dial([]string{"127.0.0.1:1"}, conn.WithDialOptions(grpc.WithContextDialer(refused)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		before := <-attempts
		for range 60 {
			at := <-attempts
			if pause := at.Sub(before); pause > time.Second {
				t.Errorf("a pause of %v", pause)
			}
			before = at
		}
	})
}
