package replica_test

import (
	"context"
	"testing"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// TestAnswersOfADeposedDecider: a decider that is cut off from the log, and has not noticed, answers nothing from its state: another
// server has changed it by now.
func TestAnswersOfADeposedDecider(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, other := c.servers[0], c.servers[1]
		decider.take("lock")
		c.same()
		do := func(s *server, command claim.Command) (claim.Answer, error) {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			outcome, err := db.Transact(ctx, s.store, db.Batch{Requests: []claim.Request{{Command: command}}})
			if err != nil {
				return claim.Answer{}, err
			}
			return outcome.Answers[0], nil
		}
		decider.log.Pause()
		time.Sleep(1500 * time.Millisecond)
		if answer, err := do(other, claim.Release{Owner: "o", Resource: "lock0"}); err != nil || answer.Err != nil {
			c.Fatal(err, answer.Err)
		}
		if answer, err := do(decider, claim.Acquire{ID: "next", Resource: "lock0", Owner: "p", TTL: time.Hour}); err == nil && answer.Err != nil {
			c.Errorf("a lock that was released: %v", answer.Err)
		}
		decider.log.Resume()
		time.Sleep(2 * time.Second)
		if answer, err := do(decider, claim.Acquire{ID: "next", Resource: "lock0", Owner: "p", TTL: time.Hour}); err != nil || answer.Err != nil {
			c.Errorf("after all: %v, %v", err, answer.Err)
		}
	})
}

// TestUnseenBeats: a server that sees the log late does not depose a decider that beats. When the beats have ended, it does.
func TestUnseenBeats(t *testing.T) {
	inCluster(t, 2, func(c *cluster) {
		decider, late := c.servers[0], c.servers[1]
		stop := decider.beats()
		decider.take("lock")
		c.same()
		before := c.log.Epoch().Number
		seen := make(chan struct{})
		late.log.Fail(func(op string) error {
			if op == "event" {
				<-seen
			}
			return latency(op)
		}, nil)
		time.Sleep(10 * time.Second)
		if now := c.log.Epoch().Number; now != before {
			c.Errorf("the epoch was raised from %d to %d", before, now)
		}
		stop()
		decider.log.Pause()
		close(seen)
		time.Sleep(5 * time.Second)
		if now := c.log.Epoch().Number; now == before {
			c.Error("nobody decides after the end of the beats")
		}
		decider.log.Resume()
		time.Sleep(2 * time.Second)
	})
}
