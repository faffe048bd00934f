package replica_test

import (
	"sync"
	"testing"
	"time"
)

// TestReadDuringRound: a read of a server that lags sees what was acknowledged before the read, even if it comes during a question
// to the log that was asked before.
func TestReadDuringRound(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, lags := c.servers[0], c.servers[1]
		c.same()
		lags.log.Fail(func(op string) error {
			if op == "event" {
				time.Sleep(600 * time.Millisecond)
			}
			return latency(op)
		}, func(op string) error {
			if op == "last" {
				time.Sleep(200 * time.Millisecond)
			}
			return nil
		})
		var early sync.WaitGroup
		early.Go(func() { _, _ = lags.store.Holder(c.Context(), "none") })
		time.Sleep(50 * time.Millisecond)
		decider.take("second")
		if _, err := lags.store.Holder(c.Context(), "second0"); err != nil {
			c.Errorf("a lock that was acknowledged before: %v", err)
		}
		early.Wait()
		lags.log.Fail(latency, nil)
	})
}
