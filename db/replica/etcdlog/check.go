package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"

	"github.com/locket-service/locket/db/replica/order"
)

const (
	// oldest and newest are the minor versions of etcd 3 that are tested.
	oldest, newest = 4, 7
	// defaultQuota is etcd's own, for versions that do not tell theirs.
	defaultQuota = 2 << 30
	// checkTime is how long Check waits for a quorum, and for each member.
	checkTime = 3 * time.Second
)

// Member is a member of etcd.
type Member struct {
	Endpoint string
	// Err is why it does not answer. Then the other fields are empty.
	Err     error
	Version string
	// Size is the size of the database, Used the part in use, and Quota how large it may become: 0 if the member does not tell.
	Size, Used, Quota int64
	Leads             bool
	Alarms            []string
}

// Report is the result of Check.
type Report struct {
	Members []Member
	// Compacts says that Trim compacts etcd, because there is no other data in it.
	Compacts bool
	Warnings []string
}

// Check asks etcd about itself. It returns an error if etcd cannot have the log: when no quorum answers, a version is too
// old, the members belong to different clusters, or a right is missing.
func (l *Log) Check(ctx context.Context) (r Report, err error) {
	ctx, end := l.within(ctx)
	defer end()
	limited, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if err := l.checkRights(limited); err != nil {
		return r, err
	}
	leader, err := l.checkMembers(ctx, &r)
	if err != nil {
		return r, err
	}
	l.change(l.current.Load(), leader)
	if r.Compacts, err = l.isAlone(ctx); err == nil && !r.Compacts {
		r.warn("there is other data in etcd, or the user %q may not see that there is none: Locket does not compact this etcd; run it with --auto-compaction-retention", l.user)
	}
	return r, err
}

func (r *Report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// checkRights makes a transaction that changes nothing and needs all rights.
func (l *Log) checkRights(ctx context.Context) error {
	if _, err := l.get(ctx, string(l.keys), etcd.WithRange(l.end()), etcd.WithCountOnly()); err != nil {
		return fmt.Errorf("etcd: read the keys: %w", err)
	}
	key := l.cluster()
	never := []etcd.Cmp{exists(key), isFree(key)}
	change := []etcd.Op{etcd.OpDelete(l.records(), etcd.WithRange(l.end())), etcd.OpPut(key, "")}
	if _, err := l.commit(ctx, never, change, nil); err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
		return fmt.Errorf("etcd: write the keys: %w", err)
	}
	return nil
}

// checkMembers asks each member about itself. It returns the leader, or the current member if none leads. Of several, the one with
// the latest term leads: a member that hung may not know of the election that followed.
func (l *Log) checkMembers(ctx context.Context, r *Report) (leader int64, err error) {
	leader = l.current.Load()
	var cluster, term uint64
	for at, m := range l.members {
		response, err := m.status(ctx)
		if err != nil {
			r.Members = append(r.Members, Member{Endpoint: m.endpoint, Err: err})
			r.warn("etcd at %s does not answer: %v", m.endpoint, err)
			continue
		}
		member := Member{
			Endpoint: m.endpoint, Version: response.Version, Size: response.DbSize, Used: response.DbSizeInUse,
			Quota: response.DbSizeQuota, Leads: response.Leader == response.Header.GetMemberId(), Alarms: response.Errors,
		}
		if r.Members = append(r.Members, member); member.Leads && response.RaftTerm > term {
			leader, term = int64(at), response.RaftTerm
		}
		if id := response.Header.GetClusterId(); cluster == 0 {
			cluster = id
		} else if cluster != id {
			return leader, fmt.Errorf("%w: etcd at %s belongs to another cluster of etcd than the endpoints before it", order.ErrUnavailable, m.endpoint)
		}
		if err := r.judge(member); err != nil {
			return leader, err
		}
	}
	return leader, nil
}

func (m *member) status(ctx context.Context) (response *etcd.StatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err = m.do(ctx, func(ctx context.Context) (err error) {
		response, err = m.client.Status(ctx, m.endpoint)
		return err
	})
	return response, err
}

// judge warns about a member, and returns an error if it cannot be used.
func (r *Report) judge(m Member) error {
	minor, err := minorVersion(m.Version)
	switch {
	case err != nil:
		r.warn("etcd at %s has the version %q, which is not tested", m.Endpoint, m.Version)
	case minor < oldest:
		return fmt.Errorf("%w: etcd at %s has the version %s; 3.%d or later is needed", order.ErrUnavailable, m.Endpoint, m.Version, oldest)
	case minor > newest:
		r.warn("etcd at %s has the version %s; 3.%d is the latest that is tested", m.Endpoint, m.Version, newest)
	}
	quota, known := m.Quota, "its quota"
	if quota == 0 {
		quota, known = defaultQuota, "etcd's default quota"
	}
	if m.Size > quota/5*4 {
		r.warn("etcd at %s uses %d MiB, more than four fifths of %s, %d MiB; %d MiB of them hold data: compact and defragment it, or raise --quota-backend-bytes",
			m.Endpoint, m.Size>>20, known, quota>>20, m.Used>>20)
	}
	for _, alarm := range m.Alarms {
		r.warn("etcd at %s has an alarm: %s", m.Endpoint, alarm)
	}
	return nil
}

// minorVersion returns the second part of a version 3.x.
func minorVersion(version string) (int, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 || parts[0] != "3" {
		return 0, errors.New("not a version of etcd 3")
	}
	return strconv.Atoi(parts[1])
}
