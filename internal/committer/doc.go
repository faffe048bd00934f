// Package committer stands between the requests and the store. Requests that arrive
// while a transaction is under way go together into the next one: one read of the
// queues that they touch, the rules for each, one write, one commit, and then every
// caller is answered. There is one Committer in a process. Who wants to know what its
// transactions changed is a Listener.
package committer
