// Package run is the supervisor of `locket run`: it runs a command while a lock is held.
//
// Three processes take part. This one, whose parent knows it, keeps the lock and passes
// signals on (Run). It starts a guard, which starts the command in its own process group, and
// becomes the parent of all that the command leaves behind (Guard). Whichever of the
// two is killed, the other one stops the command.
//
//	Run ──orders──► Guard ──signals──► the command, and what it leaves
//	    ◄──reports─       ◄──waits for
//
// Callers may rely on this: the command runs only while the lease of the lock does. The guard
// knows when the lease ends, by a clock that both processes share, and stops the command before
// that, even if this process is stuck or gone. On Linux nothing of the command is left when Run
// returns, however it forks; elsewhere, what has left its process group may be.
package run
