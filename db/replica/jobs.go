package replica

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// want notes that a call needs a decider, until the returned function is called.
func (c *cluster) want() (got func()) {
	c.wanting.Add(1)
	select {
	case c.wanted <- struct{}{}:
	default: // it is known
	}
	return func() { c.wanting.Add(-1) }
}

// deliver sends a job until it is done. The error is db.ErrUnavailable, or db.ErrOutcomeUnknown.
func (c *cluster) deliver(ctx context.Context, message []byte) ([]byte, error) {
	defer c.want()()
	return c.forwarder.deliver(ctx, message)
}

// ask has the decider do a job: this server, or another one.
func (c *cluster) ask(ctx context.Context, job record.Job) (record.Done, error) {
	var done record.Done
	job.Server = c.s.registeredName()
	if err := ctx.Err(); err != nil {
		return done, fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	message, err := record.WriteJob(&job)
	if err != nil {
		return done, err
	}
	asked := time.Now()
	outcome, err := c.deliver(ctx, message)
	if err != nil {
		return done, err
	}
	done, err = record.ReadDone(outcome)
	c.mu.Lock() // no epoch begins meanwhile
	defer c.mu.Unlock()
	if err == nil && c.mine == 0 {
		c.s.clock.told(done.Now.Lease, asked)
	}
	return done, err
}

// unasked is how long after its last commit or beat a decider answers beats of other servers without asking the log. Another server
// may have become the decider by then, without these beats.
const unasked = db.BeatInterval / 2

// do does a job of a server.
func (c *cluster) do(ctx context.Context, job record.Job) (done record.Done, err error) {
	s, epoch := c.s, c.decides()
	switch {
	case job.Read != nil:
		return s.readForOther(ctx, *job.Read)
	case epoch == 0:
		return done, ErrNotDecider
	case job.Register:
		return done, s.register(ctx, job.Server)
	}
	if job.Beat && job.Server != "" {
		done.Gone = !c.note(job.Server)
	}
	switch {
	case job.Beat && s.clock.sinceTick() > unasked:
		if err = c.commitBeat(ctx, epoch); err == nil {
			_, err = s.beat(ctx, false) // its own Beat says that this server is gone
		}
	case job.Detach:
		done.Detached, err = s.detachSilent(ctx, job.Silence, job.Server)
	case job.Prune != nil && job.Prune.Ended:
		done.Deleted, err = s.prune(ctx, job.Prune.Before, job.Prune.Limit)
	case job.Prune != nil:
		done.Next, err = s.pruneResources(ctx, job.Prune.After, job.Prune.Before, job.Prune.Limit)
	}
	done.Now = s.clock.instant()
	return done, err
}

// note notes that a server is alive. It returns false for one that was, or is being, declared gone.
func (c *cluster) note(server string) (registered bool) {
	c.mu.Lock()
	if c.gone[server] {
		c.mu.Unlock()
		return false
	}
	c.alive[server] = c.s.clock.now(time.Now())
	c.mu.Unlock()
	c.s.mu.RLock()
	defer c.s.mu.RUnlock()
	return c.s.state.Registered(server)
}

// declareGone takes no more beats of a server, unless it has been alive since a time. It returns when the server was last alive, as
// far as this one knows: then the TTLs of its sessions began.
func (c *cluster) declareGone(name string, recorded, since claim.Time) (last claim.Time, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last = max(recorded, c.alive[name])
	if last > since {
		return last, false
	}
	c.gone[name] = true
	return last, true
}

// takesBeats reports whether this decider answers the beats of a server: the server is registered, and is not being declared gone.
func (c *cluster) takesBeats(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.state.Registered(server) && !c.gone[server]
}

// hasOthers reports whether other servers with sessions have been alive in this epoch.
func (c *cluster) hasOthers() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alive) > 0
}

// others returns the other servers with sessions that have been alive in this epoch.
func (c *cluster) others() (servers []record.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.gone, func(name string, _ bool) bool { return !c.s.state.Registered(name) })
	for _, name := range slices.Sorted(maps.Keys(c.alive)) {
		if !c.s.state.Registered(name) {
			delete(c.alive, name)
			continue
		}
		servers = append(servers, record.Server{Name: name, Seen: c.alive[name]})
	}
	return servers
}

// register has the decider register the name of this server.
func (c *cluster) register(ctx context.Context, name string) error {
	message, err := record.WriteJob(&record.Job{Server: name, Register: true})
	if err == nil {
		_, err = c.deliver(ctx, message)
	}
	return err
}

// beat shows that the log takes commits: the decider commits one, and another server finds the decider alive.
func (c *cluster) beat(ctx context.Context) (decides bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("%w: %w", db.ErrUnavailable, context.Cause(ctx))
	}
	if epoch := c.decides(); epoch != 0 {
		return true, c.commitBeat(ctx, epoch)
	}
	done, err := c.ask(ctx, record.Job{Beat: true})
	if err == nil && done.Gone {
		err = db.ErrServerGone
	}
	return false, err
}

// commitBeat commits a beat in an epoch that this server decides in.
func (c *cluster) commitBeat(ctx context.Context, epoch uint64) error {
	if err := c.s.canWrite(ctx); err != nil { // another server may
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout) // the server that asked may be gone
	defer cancel()
	err := c.Log.Beat(ctx, epoch)
	if err != nil {
		c.depose(epoch)
	}
	return clusterUnavailable(err)
}
