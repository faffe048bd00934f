// Package watch wakes the calls that wait for a claim on this server when the claim has
// stopped waiting. The Hub knows these calls, and hears from the committer of this server
// what its transactions changed; the Follower, an ifrit runner, reads what the other
// servers did. The Keeper, another runner, keeps the claims of these calls from being aborted
// because nobody asks about them.
package watch
