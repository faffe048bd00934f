// Package committer stands between the requests and the store. Requests that arrive
// while a transaction is under way go together into the next one: one read of the
// queues that they touch, the rules for each, one write, one commit, and then every
// caller is answered. There is one Committer in a process.
//
// Beside it live the parts that keep the queues moving when no request comes: the
// Sweeper (leases that ran out), the Follower (what other servers did to claims that
// are awaited here) and the Janitor (history that is old enough). All are ifrit
// runners.
package committer
