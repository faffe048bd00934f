// Package watch tells the calls on this server what happens to claims. Those that wait for a claim
// are woken by the Hub when it has stopped waiting; the Hub hears from the committer of this server
// what its transactions changed. Those that watch follow one log of what all servers commit, each as
// a Watcher, from now on or after a Cursor that any server has given. The Follower, an ifrit runner,
// reads the feed for both; the WaitRenewer renews the wait of claims that calls wait for.
package watch
