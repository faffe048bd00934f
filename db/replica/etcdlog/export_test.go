package etcdlog

import (
	"context"
	"log/slog"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"
)

// UseLeader is useLeader, with the members' places among the endpoints. It returns the endpoint of the member that is used then.
func (l *Log) UseLeader(failed, now int64) string {
	l.current.Store(now)
	l.useLeader(failed, now)
	return l.members[l.current.Load()].endpoint
}

// OpenNone returns a log whose members are not there, for Ask.
func OpenNone(ctx context.Context, members int) *Log {
	l := &Log{log: slog.New(slog.DiscardHandler)}
	l.closing, l.close = context.WithCancelCause(ctx)
	for n := range members {
		l.members = append(l.members, &member{endpoint: strconv.Itoa(n), client: &etcd.Client{Maintenance: statuses{}}, secrets: &secrets{}})
	}
	return l
}

// Ask has a function answer a request: it gets the number of the member.
func (l *Log) Ask(ctx context.Context, answer func(ctx context.Context, member int) error) error {
	_, err := ask(ctx, l, func(ctx context.Context, m *member) (none struct{}, err error) {
		n, _ := strconv.Atoi(m.endpoint)
		return none, answer(ctx, n)
	})
	return err
}

// statuses answers how a member is; nothing by default.
type statuses struct {
	etcd.Maintenance
	is *etcd.StatusResponse
}

// Status implements etcd.Maintenance.
func (s statuses) Status(context.Context, string) (*etcd.StatusResponse, error) {
	if s.is == nil {
		return nil, errNoAnswer
	}
	return s.is, nil
}

// Leader returns the place of the member that leads, of some that all say that they lead, in a term each.
func Leader(ctx context.Context, terms ...uint64) (leader int64, err error) {
	l := OpenNone(ctx, len(terms))
	for at, term := range terms {
		id := uint64(at) + 1
		l.members[at].client.Maintenance = statuses{is: &etcd.StatusResponse{
			Header: &pb.ResponseHeader{ClusterId: 1, MemberId: id}, Version: "3.7.0", Leader: id, RaftTerm: term,
		}}
	}
	return l.checkMembers(ctx, &Report{})
}
