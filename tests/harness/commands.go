package harness

import "github.com/locket-service/locket/models"

// Commands makes random commands of one session. To avoid deadlocks, the session waits only for a resource that comes after all
// that it holds, until it gives up all.
type Commands struct {
	keys   []string
	intN   func(n int) int
	waits  bool
	last   int // the keys that it may hold or wait for
	shares int // a bit for each key: whether the session locks it shared
}

// NewCommands returns commands for some resources. intN returns a random number below n.
func NewCommands(keys []string, intN func(n int) int) *Commands {
	return &Commands{keys: keys, intN: intN, shares: intN(1 << len(keys))}
}

// Next returns the next command.
func (c *Commands) Next() *models.SessionRequest {
	switch n := c.intN(20); {
	case n < 9:
		return c.lock()
	case n < 16:
		return UnlockCommand(c.keys[c.intN(len(c.keys))])
	case n < 18:
		c.waits, c.last = false, 0
		return &models.SessionRequest{Command: &models.SessionRequest_UnlockAll{UnlockAll: &models.UnlockAllCommand{}}}
	}
	return HeartbeatCommand()
}

func (c *Commands) lock() *models.SessionRequest {
	try, key := c.intN(3) == 0, c.intN(len(c.keys))
	switch {
	case c.waits && try:
		key = c.intN(c.last + 1)
	case c.waits:
		key = c.last
	default:
		if !try {
			key = c.last + c.intN(len(c.keys)-c.last)
		}
		c.waits, c.last = !try, max(c.last, key)
	}
	return LockCommand(c.keys[key], func(l *models.LockCommand) {
		if l.Try = try; c.shares>>key&1 == 1 {
			Shared(l)
		}
	})
}

// Answers returns the sequence numbers of the answers on a stream that has no other reader. The claims of an opened session are
// none. The channel is closed with the stream.
func Answers(stream models.Locket_SessionClient) <-chan uint64 {
	answers := make(chan uint64, 100)
	go func() {
		defer close(answers)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			if response.GetSequence() != 0 && (response.GetStatus() == nil || response.GetSequence() != 1) {
				answers <- response.GetSequence()
			}
		}
	}()
	return answers
}
