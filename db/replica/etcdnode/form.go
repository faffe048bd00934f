package etcdnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// ask is the time between two questions to a node that has not been started yet, and remind between two messages about it.
	ask    = 100 * time.Millisecond
	remind = 10 * time.Second
)

var errDiffers = errors.New("give all nodes the same --cluster")

// forming describes a node that waits for the other nodes of a new cluster.
type forming struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
}

// form waits until each node of a new cluster has been started with an empty folder. So a node whose folder was emptied never
// takes part again with the votes that it has forgotten: one of the others says that it was there before.
func (n *Node) form(ctx context.Context) error {
	o, p := n.options, n.peers
	me := forming{o.Name, joined(o.Cluster)}
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+formingPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
	n.port.handle(mux) // until etcd starts
	missing := slices.DeleteFunc(slices.Clone(o.Cluster), func(m Member) bool { return m.Name == o.Name })
	for last, said := (time.Time{}), ""; ; {
		var reason error
		for _, m := range slices.Clone(missing) {
			switch there, err := p.isForming(ctx, m, me, o.addressOf(o.Name)); {
			case errors.Is(err, ErrRefused):
				return err
			case err != nil:
				reason = err
			case there:
				missing = slices.DeleteFunc(missing, func(other Member) bool { return other == m })
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if passed, news := time.Since(last), fmt.Sprint(reason); passed > remind || passed > time.Second && news != said {
			last, said = time.Now(), news
			o.sayWaiting(missing, reason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", joined(missing), context.Cause(ctx))
		case <-time.After(ask):
		}
	}
}

// sayWaiting says that other nodes of a new cluster are missing, and why: the reason of one of them.
func (o Options) sayWaiting(missing []Member, reason error) {
	level := slog.LevelWarn
	if errors.Is(reason, syscall.ECONNREFUSED) { // it has not been started
		level = slog.LevelInfo
	}
	o.Log.Log(context.Background(), level, "a new cluster begins when each of its nodes has been started: waiting", "for", joined(missing), "reason", reason)
}

func (o Options) addressOf(name string) string {
	for _, m := range o.Cluster {
		if m.Name == name {
			return m.Address
		}
	}
	return ""
}

// isForming reports whether another node is about to form the same cluster, or has just begun to. It returns ErrRefused if this node must not
// take part, and another error while the other node does not answer, or has another cluster in mind.
func (p *peers) isForming(ctx context.Context, other Member, me forming, address string) (bool, error) {
	var is forming
	_, err := p.get(ctx, other.Address, formingPath, "", &is)
	switch {
	case err == nil && (is.Cluster != me.Cluster || is.Name != other.Name):
		return false, fmt.Errorf("%w: the one at %s is %s and has %s, and this one has %s", errDiffers, other.Address, is.Name, is.Cluster, me.Cluster)
	case err == nil:
		return true, nil
	case !errors.Is(err, errNotServed):
		return false, err
	}
	members, _, err := p.members(ctx, other.Address)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(members, func(m listed) bool { return m.address() == address })
	switch {
	case i < 0:
		return false, fmt.Errorf("%w: node %s belongs to a cluster without this node: on a node of it, type: locket cluster add %s=%s; then start this one with --join %s instead of --cluster",
			ErrRefused, other.Name, me.Name, address, other.Address)
	case members[i].started():
		return false, fmt.Errorf("%w: node %s was a member of this cluster before, and its folder is empty now. What it has promised is lost, so it cannot go on as the same member. "+
			"On another node, type: locket cluster replace %s=%s; then start this one with --join %s instead of --cluster", ErrRefused, me.Name, me.Name, address, other.Address)
	}
	return true, nil
}

// join asks a node for the members of its cluster. The cluster must expect one node, which has never run: this one.
func join(ctx context.Context, o Options, p *peers) (self listed, all []Member, err error) {
	members, _, err := p.members(ctx, o.Join)
	if err != nil {
		return self, nil, fmt.Errorf("--join %s: %w", o.Join, err)
	}
	var waiting []listed
	for _, m := range members {
		switch m.Name {
		case o.Name:
			return self, nil, fmt.Errorf("%w: the cluster of %s has a node %s that has run before. If its folder is lost, type there: locket cluster replace %s=%s. Otherwise give this node another name",
				ErrRefused, o.Join, o.Name, o.Name, m.address())
		case "":
			waiting = append(waiting, m)
		default:
			all = append(all, Member{m.Name, m.address()})
		}
	}
	switch {
	case len(waiting) == 0:
		return self, nil, fmt.Errorf("%w: the cluster of %s does not expect a new node. On a node of it, type: locket cluster add %s=HOST:PORT", ErrRefused, o.Join, o.Name)
	case len(waiting) > 1:
		return self, nil, fmt.Errorf("%w: the cluster of %s has %d added nodes that were never started. On a node of it, type: locket cluster status", ErrRefused, o.Join, len(waiting))
	}
	self = waiting[0]
	if err := o.checkSecure(self.address()); err != nil {
		return self, nil, err
	}
	return self, append(all, Member{o.Name, self.address()}), nil
}

// initial returns the list of members as etcd takes it.
func initial(scheme string, all []Member) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, m.Name+"="+scheme+"://"+m.Address)
	}
	return strings.Join(parts, ",")
}
