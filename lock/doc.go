// Package lock is the Go client: it holds locks for a service, and has runners for ifrit groups.
//
//	client, err := lock.NewClient([]string{"127.0.0.1:8891"})
//	held, err := client.Acquire(ctx, "nightly", lock.WithTTL(15*time.Second)) // waits in the queue
//	held.Context()    // ends when the lock is lost
//	held.Token()      // to send along with writes under the lock
//	err = held.Release(ctx)
//
// # What there is
//
//   - Client: Acquire, TryAcquire, and Do, which runs a function under a lock. It has one session, and one
//     heartbeat, for all that a process holds.
//   - Session: the commands of a lock service (Lock, TryLock, Unlock, UnlockAll), and listeners that hear
//     of every change, in order.
//   - Mutex and RWMutex of a session, for the goroutines of many processes.
//   - Election: one leader, known to all. Presences: the live instances of a service; package discovery: the same for gRPC.
//     Watch: every change of any claims.
//   - Dial and package conn: the connection, TLS and credentials. Package fencing: a guard for the target.
//   - Runners, which hold a lock or announce a presence for as long as they run, as members of ifrit groups
//     (Cloud Foundry's Locket, docs/sources.md): by calls of their own, which work with Cloud Foundry's servers too
//     (NewLockRunner, NewPresenceRunner, NewClaimRunner), or by the session of a client
//     (NewSessionRunner, NewSessionPresenceRunner). NewJoint holds several, all or none.
//
// docs/go.md says which to choose.
//
// # Who decides
//
// The server decides who holds a lock. A runner holds a lease: a promise of the server that
// nobody else gets the lock before the TTL has passed since the last renewal. The server
// counts from when it took the renewal, and never ends a lease early; the runner counts from
// when it sent it, by its own monotonic clock, and its trust window ends a margin earlier
// (package lease). So the trust windows of two runners never overlap.
//
//	          granted             a renewal fails
//	waiting ──────────► held ─────────────────────► unverifiable
//	   ▲                 ▲ └──────────────┐              │ │
//	   │                 └────────────────┼──────────────┘ │
//	   │                   renewed        │                │
//	   │                                  ▼                │
//	   └─────────────────────────────── lost ◄─────────────┘
//	    a presence tries again;     another owner holds it, the grant
//	    a lock's runner ends        has ended, or the window has
//
// A session is one lease for all that it holds. Its window is prolonged by heartbeats: the server answers one after it
// has shown the database that it is alive, later than the heartbeat came. So a server that is cut off from the
// database, or was stopped and goes on, prolongs nothing.
//
//	              a server took it                 the stream breaks
//	opening ───────────────────────► attached ──────────────────────► detached
//	   ▲                              ▲    │  ▲                        │    │
//	   └─ no server can be reached    │    │  └────────────────────────┘    │ the trust window ends
//	                                  │    │     resumed, at any server     │
//	                       heartbeats ┘    │                                ▼
//	                                       └───────────────────────────► done
//	                                         closed; ended by a server
//
// # What happens on failures, to a session
//
//   - Its stream breaks, or a heartbeat is not answered for a quarter of the TTL: it resumes at the next address, over
//     another connection. Its locks and its places in queues are unchanged, and commands without an answer are sent
//     again. Holders and listeners are notified of locks that have ended in the meantime.
//   - No server can be reached, or none can reach the database: locks stay held until the trust window ends. Then the
//     session resigns: its locks are lost, and all holders and listeners are notified, before a server grants one to
//     somebody else. The Client continues with a new session; waiters join the queues again.
//   - A server ends the session (an administrator, its TTL): the same, at once.
//   - The process is stopped for longer than the window: Err, Held and Status say so from the first moment on.
//   - One of its locks is ended: its holder is notified at once, the others are not affected.
//
// # What happens on failures, to a runner
//
//   - A renewal fails (the server restarts, the network loses it): the lock stays held for as
//     long as the trust window lasts. The runner tries again, each attempt with a deadline of at
//     most a third of the TTL; with a connection of Dial over another connection when one is
//     stuck.
//   - The server does not let the caller lock (Unauthenticated, PermissionDenied): a runner that
//     does not hold ends with the error; one that holds reports it (Callbacks.Unverifiable), and
//     tries again as after any other failure.
//   - The trust window ends without a renewal: lost, whatever the server would answer. When the
//     margin has passed, the grant is released in the background, by its token, in bounded
//     time: the server may have taken a renewal whose answer was lost.
//   - Another owner holds the lock, or the grant has ended and there is a new one (its token changed): lost, at once.
//   - Somebody ends the grant: lost, at once, with the reason, since the runner watches its claim; at the next
//     renewal with servers that have no Watch.
//   - The process is stopped for longer than its lease (SIGSTOP, a long collection, a frozen
//     virtual machine whose clock goes on): Held returns that from the first moment on, and the
//     runner ends before it sends anything. What was written before the check may still reach
//     its target late: guard that with the fencing token (package fencing).
//   - A claim becomes active while its connection is silent: the runner finds the grant while it
//     lasts, and makes a new claim after it has expired.
//   - A signal: the runner releases the lock, in bounded time, and ends with nil, unless the trust window had
//     ended before. A release that fails is retried in the background.
//   - The process dies: its lock is free when the TTL has passed.
//
// # Owners
//
// The server knows callers by their owners: two runners with the same owner both hold a lock. Leave it empty to give
// each runner its own (UniqueOwner).
//
// # What a holder must do
//
// Stop when the runner ends. Ask Held before each step that must not be done twice, and send
// the token along with it; the target refuses tokens lower than the highest that it has seen.
package lock
