// Package watch reports changes of claims to the calls, sessions and watches of this server. The Hub wakes a call
// that waits for a claim when the claim has stopped waiting; the committer of this server reports to it what its
// transactions changed. A Watcher follows one log of all servers' commits, from now on or after a Cursor from any
// server. The Follower, an ifrit runner, reads the feed for both. The WaitRenewer renews the wait of the claims that
// calls wait for.
package watch
