package lock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// PresenceInfo is somebody who has announced to be alive.
type PresenceInfo struct {
	// Key is the resource, Owner who has announced it, Value its text, such as an address.
	Key, Owner, Value string
	Token             uint64
}

// PresenceChange is one change of a set of presences.
type PresenceChange struct {
	Kind     ChangeKind
	Presence PresenceInfo
}

// ChangeKind is what has happened to a presence.
type ChangeKind int

// The kinds of changes.
const (
	// Joined: the presence is new.
	Joined ChangeKind = iota
	// Changed: the owner, the token or the value of a key is another one.
	Changed
	// Left: the presence is gone.
	Left
)

func (k ChangeKind) String() string {
	switch k {
	case Joined:
		return "joined"
	case Changed:
		return "changed"
	case Left:
		return "left"
	default:
		return fmt.Sprintf("change %d", int(k))
	}
}

// PresenceSet is the set of presences under a prefix, kept up to date until its context ends.
type PresenceSet struct {
	done chan struct{}

	mu  sync.Mutex
	set map[string]PresenceInfo // by key
	// reported is the set as Next has reported it.
	reported map[string]PresenceInfo
	// changed is closed, and replaced, with every change.
	changed chan struct{}
	err     error
}

// Presences returns the presences whose keys begin with a prefix, kept up to date until ctx is done. It returns
// when the set is complete for the first time, or with the error with which the servers refuse. While no server can be
// reached the set stays as it was: which processes are alive cannot be known then.
func Presences(ctx context.Context, client *Client, prefix string) (*PresenceSet, error) {
	if len(prefix) > base.MaxResource || !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
		return nil, fmt.Errorf("presences: the prefix must be UTF-8 without NUL of at most %d bytes", base.MaxResource)
	}
	p := &PresenceSet{done: make(chan struct{}), changed: make(chan struct{}), reported: make(map[string]PresenceInfo)}
	f := &feed.Follower{Client: client.rpc, Changed: p.take, Request: &models.WatchRequest{Prefix: prefix, TypeCode: models.TypeCode_PRESENCE}}
	complete := p.changed
	go func() {
		err := f.Run(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = fmt.Errorf("presences of %q: %w", prefix, err)
		close(p.done)
	}()
	select {
	case <-complete:
		return p, nil
	case <-p.done:
		return nil, p.Err()
	}
}

// take takes the claims as they are now.
func (p *PresenceSet) take(claims map[string]*models.Claim) {
	set := make(map[string]PresenceInfo)
	for _, c := range claims {
		if c.GetStatus() == models.Status_STATUS_ACTIVE && set[c.GetResource()].Token < c.GetToken() {
			set[c.GetResource()] = PresenceInfo{c.GetResource(), c.GetOwner(), c.GetValue(), c.GetToken()}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set = set
	close(p.changed)
	p.changed = make(chan struct{})
}

// All returns the set as it is now, in the order of the keys.
func (p *PresenceSet) All() []PresenceInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]PresenceInfo, 0, len(p.set))
	for _, presence := range p.set {
		all = append(all, presence)
	}
	slices.SortFunc(all, func(a, b PresenceInfo) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Next waits for changes, and returns them in the order of the keys: the first time all that are there. A caller that asks
// seldom gets the difference between then and now. It returns the error of ctx, or of Err when the set is no
// longer kept. It is for one goroutine.
func (p *PresenceSet) Next(ctx context.Context) ([]PresenceChange, error) {
	for {
		p.mu.Lock()
		changes, changed := p.difference(), p.changed
		p.mu.Unlock()
		if len(changes) > 0 {
			return changes, nil
		}
		select {
		case <-changed:
		case <-p.done:
			return nil, p.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// difference returns what has changed since the last time. The caller has the lock.
func (p *PresenceSet) difference() (changes []PresenceChange) {
	for key, presence := range p.set {
		if before, known := p.reported[key]; !known {
			changes = append(changes, PresenceChange{Joined, presence})
		} else if before != presence {
			changes = append(changes, PresenceChange{Changed, presence})
		}
	}
	for key, presence := range p.reported {
		if _, there := p.set[key]; !there {
			changes = append(changes, PresenceChange{Left, presence})
		}
	}
	p.reported = p.set
	slices.SortFunc(changes, func(a, b PresenceChange) int { return cmp.Compare(a.Presence.Key, b.Presence.Key) })
	return changes
}

// Done is closed when the set is no longer kept: its context is done, or the servers refuse.
func (p *PresenceSet) Done() <-chan struct{} { return p.done }

// Err returns why the set is no longer kept, nil while it is.
func (p *PresenceSet) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
