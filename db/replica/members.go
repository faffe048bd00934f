package replica

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/rules/claim"
)

// announcement describes a server of a cluster to the others.
type announcement struct {
	db.Member
	key string // see cluster.key
	// About is how others reach it.
	About []byte `json:",omitempty"`
	// Snapshot is the last entry in its last snapshot.
	Snapshot uint64
	// Complete says that its history has all claims that have ended.
	Complete bool
	// Format is the highest format that it knows, and Used the one in use.
	Format uint64
	Used   uint64 `json:",omitempty"`
	// NewFrom is when this decider will have the servers use a newer format that all know; 0 for none.
	NewFrom claim.Time `json:",omitempty"`
}

const (
	// trimInterval is how often the decider trims the log, and a server looks for claims that its history lacks.
	trimInterval = 30 * time.Second
	// trimTimeout is how long that may take.
	trimTimeout = 20 * time.Second
)

// LaggingError is returned by Open, and is the failure of a store, when the records that the server needs are no longer in the
// log of the cluster: see CatchUp.
type LaggingError struct {
	// Log is the id of the log, and After the last entry that the server has.
	Log, After uint64
}

func (e *LaggingError) Error() string {
	return fmt.Sprintf("this server has the log of the cluster up to entry %d, and the next one is no longer there: it needs another server's snapshot", e.After)
}

// key is the key of this server's announcement. It is the same for all runs in a folder, so that a run replaces the announcement of the one
// before, which may have crashed.
func (c *cluster) key() string { return fmt.Sprintf("%016x", c.s.folder.node) }

// announce is Store.Announce.
func (c *cluster) announce(ctx context.Context, m db.Member, leaves bool) error {
	if leaves {
		return clusterUnavailable(c.Log.Announce(ctx, c.key(), nil))
	}
	m.Seen = c.s.clock.wallTime()
	a := announcement{
		Member: m, About: c.Peers.About(), Snapshot: c.s.snapshotted.Load(), Complete: c.s.HistoryComplete(), Format: c.s.options.Format, Used: c.usedFormat(),
	}
	if since := c.newSince.Load(); since != nil {
		a.NewFrom = m.Seen.Add(c.s.options.FormatDelay - time.Since(*since))
	}
	about, err := json.Marshal(a)
	if err == nil {
		err = c.Log.Announce(ctx, c.key(), about)
	}
	return clusterUnavailable(err)
}

// members is Store.Members.
func (c *cluster) members(ctx context.Context) (members []db.Member, err error) {
	announced, err := c.announced(ctx)
	for _, a := range announced {
		members = append(members, a.Member)
	}
	return members, err
}

// sighting is when this server has seen an announcement change.
type sighting struct {
	announced claim.Time // by the announcing server's clock
	at        time.Time
}

// announced returns the servers that have announced themselves within db.MemberAge, and forgets the others. The clocks of servers may
// differ: an announcement is as old as this server has seen it unchanged.
func (c *cluster) announced(ctx context.Context) (known []announcement, err error) {
	all, err := c.Cluster.announced(ctx)
	if err != nil {
		return nil, err
	}
	c.sighted.Lock()
	defer c.sighted.Unlock()
	before := c.sightings
	c.sightings = make(map[string]sighting, len(all))
	for _, a := range all {
		s := before[a.Name]
		if s.announced != a.Seen {
			s = sighting{a.Seen, time.Now()}
		}
		age := time.Since(s.at)
		if age > db.MemberAge {
			_ = c.Log.Announce(ctx, a.key, nil) // the next call tries again
			continue
		}
		a.Seen = c.s.clock.wallTime().Add(-age)
		known, c.sightings[a.Name] = append(known, a), s
	}
	return known, nil
}

// announced returns all announcements of servers, in the order of their names.
func (c *Cluster) announced(ctx context.Context) (all []announcement, err error) {
	texts, err := c.Log.Announced(ctx)
	if err != nil {
		return nil, clusterUnavailable(err)
	}
	delete(texts, finalizeKey)
	for key, text := range texts {
		a := announcement{key: key}
		if err := json.Unmarshal(text, &a); err != nil {
			_ = c.Log.Announce(ctx, key, nil) // the next call tries again
			continue
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b announcement) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// maintain trims the log while this server decides, and fills the gaps of its history.
func (c *cluster) maintain(ctx context.Context) {
	for {
		pause(ctx, trimInterval)
		if ctx.Err() != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, trimTimeout)
		err := c.trim(limited)
		cancel()
		if err = errors.Join(err, c.fillHistory(ctx)); err != nil && ctx.Err() == nil {
			c.s.options.Log.Warn("the log of the cluster cannot be trimmed, or the history is incomplete", "error", err)
		}
	}
}

// trim deletes the records of the log that a majority of the servers have in their snapshots.
func (c *cluster) trim(ctx context.Context) error {
	if c.decides() == 0 {
		return nil
	}
	announced, err := c.announced(ctx)
	if err != nil || len(announced) == 0 {
		return err
	}
	snapshots := make([]uint64, len(announced))
	for i, a := range announced {
		snapshots[i] = a.Snapshot
	}
	slices.Sort(snapshots)
	if upTo := snapshots[(len(snapshots)-1)/2]; upTo > 0 { // a majority has it, or more
		return c.Log.Trim(ctx, upTo)
	}
	return nil
}

// fillHistory gets the claims that the history lacks from a server that has them.
func (c *cluster) fillHistory(ctx context.Context) error {
	if c.s.HistoryComplete() {
		return nil
	}
	err := errNoneComplete
	announced, unknown := c.announced(ctx)
	for _, a := range announced {
		if len(a.About) == 0 || string(a.About) == string(c.Peers.About()) {
			continue
		}
		err = c.s.ReceiveHistory(ctx, func(request []byte, part func([]byte) error) error {
			return c.Peers.History(ctx, a.About, request, part)
		})
		if err == nil {
			break
		}
	}
	return errors.Join(unknown, err)
}

var errNoneComplete = errors.New("no other server has the claims that are missing; if none ever will, stop this server and type: sqlite3 history.db 'DELETE FROM gaps'")

// CatchUp gets the snapshot that a server needs from another server of its cluster, for a LaggingError of Open. The folder must
// have no running server.
func CatchUp(ctx context.Context, path string, c Cluster, lags *LaggingError, log *slog.Logger) error {
	announced, err := c.announced(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(announced, func(a, b announcement) int { return cmp.Compare(b.Snapshot, a.Snapshot) })
	err = fmt.Errorf("%w: no other server has announced a snapshot", db.ErrUnavailable)
	for _, a := range announced {
		if a.Snapshot <= lags.After || len(a.About) == 0 {
			continue
		}
		log.Info("the snapshot of another server is received", "server", a.Name, "entry", a.Snapshot)
		err = ReceiveSnapshot(path, lags.Log, lags.After, func(request []byte, part func([]byte) error) error {
			return c.Peers.Snapshot(ctx, a.About, request, part)
		})
		if err == nil {
			return nil
		}
	}
	return err
}
