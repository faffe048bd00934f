package lock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/locket-service/locket/lock/internal/base"
	"github.com/locket-service/locket/lock/internal/feed"
	"github.com/locket-service/locket/models"
)

// PresenceInfo is an announcement: its owner is alive.
type PresenceInfo struct {
	// Key is the resource, Owner the announced party, and Value its text, such as an address.
	Key, Owner, Value string
	Token             uint64
}

// PresenceChange is one change of a set of presences.
type PresenceChange struct {
	Kind     ChangeKind
	Presence PresenceInfo
}

// ChangeKind is the kind of a change of a presence.
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
	follower *feed.Follower
	prefix   string
	// reported is the set as Next has reported it.
	reported map[string]PresenceInfo
}

// Presences returns the presences whose keys have a prefix, and keeps them up to date until ctx is done. It returns
// when the set is complete for the first time, or with an error if the servers refuse. While no server can be reached
// the set does not change, because nobody knows then which processes are alive.
func Presences(ctx context.Context, client *Client, prefix string) (*PresenceSet, error) {
	if len(prefix) > base.MaxResource || !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
		return nil, fmt.Errorf("presences: the prefix must be UTF-8 without NUL of at most %d bytes", base.MaxResource)
	}
	request := &models.WatchRequest{Prefix: prefix, TypeCode: models.TypeCode_PRESENCE}
	p := &PresenceSet{follower: feed.Follow(ctx, client.rpc, request), prefix: prefix}
	claims, changed := p.follower.Claims()
	if claims == nil {
		select {
		case <-changed:
		case <-p.Done():
			return nil, p.Err()
		}
	}
	return p, nil
}

// presencesOf returns the presences that claims announce, by key.
func presencesOf(claims map[string]*models.Claim) map[string]PresenceInfo {
	set := make(map[string]PresenceInfo)
	for _, c := range claims {
		if c.GetStatus() == models.Status_STATUS_ACTIVE && set[c.GetResource()].Token < c.GetToken() {
			set[c.GetResource()] = PresenceInfo{c.GetResource(), c.GetOwner(), c.GetValue(), c.GetToken()}
		}
	}
	return set
}

// All returns the current set, sorted by key.
func (p *PresenceSet) All() []PresenceInfo {
	claims, _ := p.follower.Claims()
	return slices.SortedFunc(maps.Values(presencesOf(claims)), func(a, b PresenceInfo) int { return cmp.Compare(a.Key, b.Key) })
}

// Next waits for changes and returns them in the order of the keys; the first call returns all presences. Changes
// between two calls are combined. It returns ctx's error, or the error of Err when the set is no longer kept up to
// date. Only one goroutine may call it.
func (p *PresenceSet) Next(ctx context.Context) ([]PresenceChange, error) {
	for {
		claims, changed := p.follower.Claims()
		if changes := p.report(presencesOf(claims)); len(changes) > 0 {
			return changes, nil
		}
		select {
		case <-changed:
		case <-p.Done():
			return nil, p.Err()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// report returns the changes since the last call.
func (p *PresenceSet) report(set map[string]PresenceInfo) (changes []PresenceChange) {
	for key, presence := range set {
		if before, known := p.reported[key]; !known {
			changes = append(changes, PresenceChange{Joined, presence})
		} else if before != presence {
			changes = append(changes, PresenceChange{Changed, presence})
		}
	}
	for key, presence := range p.reported {
		if _, there := set[key]; !there {
			changes = append(changes, PresenceChange{Left, presence})
		}
	}
	p.reported = set
	slices.SortFunc(changes, func(a, b PresenceChange) int { return cmp.Compare(a.Presence.Key, b.Presence.Key) })
	return changes
}

// Done returns a channel that is closed when the set is no longer kept up to date: its context is done, or the servers
// refuse.
func (p *PresenceSet) Done() <-chan struct{} { return p.follower.Done() }

// Err returns nil while the set is kept up to date, then the reason.
func (p *PresenceSet) Err() error {
	if err := p.follower.Err(); err != nil {
		return fmt.Errorf("presences of %q: %w", p.prefix, err)
	}
	return nil
}
