// Package run is the supervisor of `locket run`: it runs a command while a lock is held.
//
// Four processes take part. This one, whose parent knows it, keeps the lock and passes signals on (Run). It starts a reaper, which starts a
// guard (Guard), which starts the command, in its own process group and, where Linux allows it, in its own control group. Whichever two of
// the three are killed, the third one stops the command and all that it left: the guard stops it with TERM and time to end, the reaper
// (Reaper) and this process kill. If the reaper alone is killed, the guard stops the command: nobody can take the reaper's place among the
// ancestors of the guard. The guard and the reaper stay until this process says that it has released the locks, and release them if it ends
// before.
//
//	Run ─────► Reaper ─────► Guard ──signals──► the command, and what it leaves
//	  ──────orders─────────►      ◄──waits for
//	  ◄─────reports─────────
//	  ──────released───────►
//
// If all three are killed at once, the command itself is killed by the kernel, and what it has started runs on.
//
// Callers may rely on this: the command runs only while the lease of the lock does. The guard knows when the lease ends, by a clock that
// both processes share, and stops the command before that, even if this process is stuck or gone; this process does if the guard is. On
// Linux nothing of the command is left when Run returns, however it forks; elsewhere, what has left its process group may be.
package run
