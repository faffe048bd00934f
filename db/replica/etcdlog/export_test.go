package etcdlog

// UseLeader is useLeader, with the members' places among the endpoints. It returns the endpoint of the member that is used then.
func (l *Log) UseLeader(failed, now int64) string {
	l.current.Store(now)
	l.useLeader(failed, now)
	return l.members[l.current.Load()].endpoint
}
