package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/db/replica/order"
	"github.com/locket-service/locket/db/replica/record"
	"github.com/locket-service/locket/internal/rules/claim"
)

// The servers of a cluster use one format for everything: see record.Format. Each announces the highest one that it knows. When all have known a
// newer one for a day, so that nobody takes the new program back, or when an operator finalizes it, the decider writes a record with it. From
// then on a server that does not know the format does not start.

const (
	// formatInterval is how often the servers look for a newer format while one is known.
	formatInterval = 2 * time.Second
	// finalizeKey is a name that no server has. An operator announces the format to use at once with it.
	finalizeKey = "finalize"
	// finalizePause is the time between two looks at the servers while a format is finalized.
	finalizePause = 200 * time.Millisecond
)

// Formats are the formats of the log of a cluster.
type Formats struct {
	// Used is the format in use, and Newest the newest one that all servers know.
	Used, Newest uint64
	// From is when the servers will use Newest by themselves; 0 if they use it, or nobody decides.
	From claim.Time
	// Servers are the servers, with the newest format that each knows.
	Servers []ServerFormat
}

// ServerFormat is a server, and the newest format that it knows.
type ServerFormat struct {
	db.Member
	Format uint64
}

// Latest returns the newest format that any server knows, and the server that knows the oldest one, if that differs.
func (f *Formats) Latest() (latest uint64, behind *ServerFormat) {
	for _, s := range f.Servers {
		latest = max(latest, s.Format)
	}
	if latest > f.Newest {
		behind = &f.Servers[slices.IndexFunc(f.Servers, func(s ServerFormat) bool { return s.Format == f.Newest })]
	}
	return latest, behind
}

// ReadFormats returns the formats, as the servers have last announced them.
func ReadFormats(ctx context.Context, log order.Log) (f Formats, err error) {
	c := Cluster{Log: log}
	announced, err := c.announced(ctx)
	if err == nil && len(announced) == 0 {
		err = fmt.Errorf("%w: no server of the cluster has announced itself", db.ErrUnavailable)
	}
	if err != nil {
		return f, err
	}
	f.Newest = announced[0].Format
	for _, a := range announced {
		f.Used, f.Newest, f.From = max(f.Used, a.Used), min(f.Newest, a.Format), max(f.From, a.NewFrom)
		f.Servers = append(f.Servers, ServerFormat{a.Member, a.Format})
	}
	return f, nil
}

// ErrNotKnown is returned by Finalize when a server does not know a newer format.
var ErrNotKnown = errors.New("not all servers know the newest format")

// Finalize has the servers use Newest, and waits until they do. It returns ErrNotKnown, and names a server, if Newest is in use and
// other servers know a newer format.
func (f *Formats) Finalize(ctx context.Context, log order.Log) error {
	latest, behind := f.Latest()
	switch {
	case f.Newest > f.Used:
		return finalize(ctx, log, f.Newest)
	case behind != nil:
		return fmt.Errorf("%w, %d: server %s on %q, with version %s, knows up to %d. Replace its program first. A server that was killed counts for %v",
			ErrNotKnown, latest, behind.Name, behind.Host, behind.Version, behind.Format, db.MemberAge)
	}
	return nil
}

// finalize asks for a format until a server uses it. It repeats the request, which another operator's may replace.
func finalize(ctx context.Context, log order.Log, format uint64) error {
	request, err := json.Marshal(announcement{Format: format})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		_ = log.Announce(ctx, finalizeKey, nil) // a request that is left asks for this format, and no later one
	}()
	for {
		f, err := ReadFormats(ctx, log)
		switch {
		case err != nil:
			return err
		case f.Used >= format:
			return nil
		}
		if err := log.Announce(ctx, finalizeKey, request); err != nil {
			return clusterUnavailable(err)
		}
		if pause(ctx, finalizePause); ctx.Err() != nil {
			return fmt.Errorf("%w: the servers do not use format %d yet", db.ErrUnavailable, format)
		}
	}
}

// watchFormats raises the format when that is due.
func (c *cluster) watchFormats(ctx context.Context) {
	for pause(ctx, formatInterval); ctx.Err() == nil; pause(ctx, formatInterval) {
		limited, cancel := context.WithTimeout(ctx, answerTimeout)
		if err := c.raiseFormat(limited); err != nil {
			c.s.options.Log.Debug("the format of the log of the cluster cannot be raised", "error", err)
		}
		cancel()
	}
}

// raiseFormat has the servers use a newer format that all of them know, if this server decides: the newest one when it is time, and before that the
// format that an operator requests.
func (c *cluster) raiseFormat(ctx context.Context) error {
	used := c.usedFormat()
	if c.s.options.Format <= used {
		c.newSince.Store(nil)
		return nil
	}
	texts, err := c.Log.Announced(ctx)
	if err != nil {
		return err
	}
	var request announcement
	if text := texts[finalizeKey]; text != nil {
		if err := json.Unmarshal(text, &request); err != nil {
			return err
		}
	}
	if c.decides() == 0 {
		c.newSince.Store(nil)
		if request.Format > used {
			_, err = c.ask(ctx, record.Job{Beat: true}) // an idle cluster may have no decider
		}
		return err
	}
	format, err := c.newestFormat(ctx)
	if err != nil || format <= used {
		c.newSince.Store(nil)
		return err
	}
	c.newSince.CompareAndSwap(nil, new(time.Now()))
	if time.Since(*c.newSince.Load()) < c.s.options.FormatDelay {
		format = min(format, request.Format)
	}
	if format <= used {
		return nil
	}
	c.s.options.Log.Info("the servers use a newer format from now on", "format", format)
	return c.s.write(ctx, func(d decision) (*record.Record, error) {
		return &record.Record{Header: record.Header{Wall: d.now.Wall}, Format: format}, nil
	})
}

// usedFormat returns the format in use.
func (c *cluster) usedFormat() uint64 {
	c.s.mu.RLock()
	defer c.s.mu.RUnlock()
	return c.s.state.Format()
}

// newestFormat returns the newest format that all servers know, 0 if there are none.
func (c *cluster) newestFormat(ctx context.Context) (newest uint64, err error) {
	announced, err := c.announced(ctx)
	if err != nil || len(announced) == 0 {
		return 0, err
	}
	newest = c.s.options.Format
	for _, a := range announced {
		newest = min(newest, a.Format)
	}
	return newest, nil
}
