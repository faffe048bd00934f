package record

import (
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Job is a request of a server to another one, mostly to the decider, beside batches. It may be carried out more than once.
type Job struct {
	// Server is the name that the asking server keeps sessions alive under, "" for none.
	Server string
	// Register says that the name is new.
	Register bool
	// Beat says that the asking server is alive, and that the decider is to show that it can commit.
	Beat bool
	// Detach asks the decider to declare servers gone that were silent for Silence, in lease time.
	Detach  bool
	Silence time.Duration
	// Prune, unless it is nil, asks the decider to delete something.
	Prune *Prune
	// Read, unless it is nil, asks a server whose history is complete for claims. It need not be the decider.
	Read *Query
}

// Query is for the claim with an id, or for a list if that is "".
type Query struct {
	ID     string
	Filter db.Filter
}

// Prune is about rows of resources, or claims that have ended: see db.Pruner.
type Prune struct {
	Ended  bool
	After  string
	Before claim.Time
	Limit  int
}

// Done is the outcome of a job.
type Done struct {
	// Now is the time of the decider.
	Now claim.Instant
	// Gone says that the server was declared gone.
	Gone bool
	// Detached is how many sessions were detached.
	Detached int
	// Deleted is how many claims were deleted.
	Deleted int
	// Next is the name to continue pruning from.
	Next string
	// Claims are the result of a Read.
	Claims []claim.Claim
}

// WriteJob encodes a job. A batch begins with its Origin, whose Node is never 0, and a job with 0.
func WriteJob(j *Job) ([]byte, error) { return write(func(c *coder) { c.job(j) }) }

// ReadJob decodes the output of WriteJob. is is false for anything else.
func ReadJob(data []byte) (j Job, is bool) {
	return j, read(data, func(c *coder) { c.job(&j) }) == nil
}

func (c *coder) job(j *Job) {
	node := uint64(0)
	if c.Unsigned(&node); node != 0 {
		c.fail("job")
		return
	}
	c.texts(&j.Server)
	c.flags(&j.Register, &j.Beat, &j.Detach)
	duration(c, &j.Silence)
	optional(c, &j.Prune, func(c *coder, p *Prune) {
		c.flags(&p.Ended)
		c.texts(&p.After)
		signed(c, &p.Before)
		signed(c, &p.Limit)
	})
	optional(c, &j.Read, func(c *coder, r *Query) {
		c.texts(&r.ID)
		c.filter(&r.Filter)
	})
}

// WriteDone encodes the outcome of a job.
func WriteDone(d *Done) ([]byte, error) { return write(func(c *coder) { c.done(d) }) }

// ReadDone decodes the output of WriteDone. It returns ErrFormat for anything else.
func ReadDone(data []byte) (d Done, err error) {
	return d, read(data, func(c *coder) { c.done(&d) })
}

func (c *coder) done(d *Done) {
	c.instant(&d.Now)
	c.flags(&d.Gone)
	signed(c, &d.Detached, &d.Deleted)
	c.texts(&d.Next)
	list(c, &d.Claims, func(c *coder, of *claim.Claim) { c.Claim(of) })
}

func (c *coder) filter(f *db.Filter) {
	for _, text := range []**string{&f.Resource, &f.Owner} {
		optional(c, text, func(c *coder, s *string) { c.texts(s) })
	}
	c.texts(&f.Prefix)
	optional(c, &f.Units, func(c *coder, u *claim.Units) { c.Units(u) })
	list(c, &f.Statuses, func(c *coder, s *claim.Status) { small(c, s, claim.Revoked) })
	for _, d := range []**time.Duration{&f.MinActive, &f.MaxActive, &f.MinWaiting, &f.MaxWaiting, &f.MinTTL, &f.MaxTTL} {
		optional(c, d, duration)
	}
	for _, t := range []**claim.Time{&f.MinCreated, &f.MaxCreated} {
		optional(c, t, func(c *coder, t *claim.Time) { signed(c, t) })
	}
	c.flags(&f.Newest)
	optional(c, &f.After, func(c *coder, after *db.Cursor) {
		signed(c, &after.Created)
		c.texts(&after.ID)
	})
	signed(c, &f.Limit, &f.Offset, &f.Bytes)
}
