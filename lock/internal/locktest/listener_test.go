package locktest

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestDialBesideOthers: the race detector bears clients that dial at the same moment of a bubble.
func TestDialBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := listen(64)
		const clients, dials = 4, 2000
		var all sync.WaitGroup
		for range clients {
			network := Over(listener)
			all.Go(func() {
				for range dials {
					c, err := network.Dial(t.Context(), "")
					if err != nil {
						t.Error(err)
						return
					}
					_ = c.Close()
				}
			})
		}
		for range clients * dials {
			c, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		all.Wait()
	})
}
