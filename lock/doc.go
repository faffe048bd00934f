// Package lock is Locket's client for Go programs: locks, mutexes, elections and presences shared by many processes.
//
//	client, err := lock.NewClient([]string{"127.0.0.1:8891"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	err = client.Do(ctx, "nightly", func(ctx context.Context, token uint64) error {
//		return makeReport(ctx, token) // ctx ends when the lock is lost
//	})
//
// Acquire holds a lock for longer than one function:
//
//	held, err := client.Acquire(ctx, "nightly") // waits in the queue
//	held.Token()                                // the fencing token: send it with each write
//	held.Context()                              // ends when the lock is lost
//	err = held.Release(ctx)
//
// # Which type to use
//
//   - [Client] holds locks: Do, Acquire, and TryAcquire, which does not wait. Use one client per process.
//   - [Mutex] and [RWMutex] exclude the goroutines of many processes.
//   - [Election] elects one leader and publishes its address.
//   - [WithPresence] announces that a process is alive; [Presences] lists such announcements. Package discovery
//     resolves gRPC names with them.
//   - [Session] has the commands Lock, TryLock, Unlock and UnlockAll, and reports each change of its locks to
//     listeners.
//   - [Runner] holds a lock as a member of an ifrit group: it is ready when it holds the lock, and exits when it has
//     lost it. NewSessionRunner shares the session of a client. NewLockRunner and NewPresenceRunner also work with
//     Cloud Foundry's servers. [Joint] holds several locks, all or none.
//   - [Watch] reports every change of claims.
//
// The options of package conn set TLS and credentials (WithDial, Dial). Package fencing refuses late writes, reentrant
// has mutexes to lock more than once, lockmetrics and locktrace make metrics and traces. docs/go.md has a table
// of tasks with examples.
//
// # What a holder must do
//
// Stop working when the context of the hold ends, or when the runner exits. Send the fencing token with each write, so
// that the target can refuse a late one: a process may be paused between its last check and its write. Before a step
// that must not be done twice, check Hold.Err or Runner.Held. They read the clock, so they are right even directly
// after a long pause.
//
// # Errors
//
//   - models.ErrLockCollision: TryAcquire found the lock held or others waiting; the text names the holder.
//   - ErrLost: the lock was held and is lost. It wraps the cause: ErrTimeUp, ErrSessionEnded, ErrTokenChanged,
//     ErrRolledBack, or a models.ClaimEndedError, which says who ended the claim and why.
//   - *models.DeadlockError: the claim waited in a deadlock and was aborted to end it.
//   - ErrReleased, ErrClosed: the program itself released the lock or closed the client.
//
// errors.Is and errors.As find them; for the error of an ifrit group use FromGroup.
//
// # Owners
//
// An owner is the name of the party that holds or waits. By default each client, session and runner has its own
// (UniqueOwner). If two runners of NewLockRunner use the same owner, both hold the lock.
//
// # Leases and trust windows
//
// The server decides who holds a lock. The holder has a lease: the server grants the lock to nobody else until the TTL
// has passed since the last renewal, and never ends a lease early. The server counts from the time when it received
// the renewal. The client counts from the time when it sent the renewal, on its monotonic clock, and stops trusting
// the lease a margin earlier: a twentieth of the TTL, at least 100 ms. This is the trust window. The trust windows of
// two holders never overlap.
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
// A session has one lease for all its locks. Heartbeats renew it. A server answers a heartbeat after it has committed
// to the database, so a server that is cut off from the database renews nothing.
//
//	              a server accepted it             the stream breaks
//	opening ───────────────────────► attached ──────────────────────► detached
//	   ▲                              ▲    │  ▲                        │    │
//	   └─ no server can be reached    │    │  └────────────────────────┘    │ the trust window ends
//	                                  │    │     resumed, at any server     │
//	                       heartbeats ┘    │                                ▼
//	                                       └───────────────────────────► done
//	                                         closed; ended by a server
//
// # Failures of a session
//
//   - The stream breaks, or a heartbeat is not answered for a quarter of the TTL: the session resumes at the next
//     address, over another connection. It keeps its locks and its places in queues, and sends unanswered commands
//     again. Holders and listeners hear of locks that have ended meanwhile.
//   - No server can be reached, or no server can reach the database: locks stay held until the trust window ends.
//     Then they are lost, and holders and listeners are notified before a server grants a lock to anybody else. The
//     Client continues with a new session, and waiting goroutines join the queues again.
//   - A server ends the session (an administrator, its TTL): the same, at once.
//   - The process is paused for longer than the trust window: Err, Held and Status report the loss at once.
//   - Somebody ends one of its locks: its holder is notified at once. Other locks are not affected.
//
// # Failures of a runner
//
//   - A renewal fails (the server restarts, the network loses it): the lock stays held until the trust window ends.
//     The runner tries again. Each attempt takes at most a third of the TTL; if a connection of Dial is silent, the
//     next attempt uses another one.
//   - The server refuses the caller (Unauthenticated, PermissionDenied): a runner that does not hold ends with the
//     error. A runner that holds reports it (Callbacks.Unverifiable) and tries again.
//   - The trust window ends without a renewal: the lock is lost. After the margin the runner releases the grant in
//     the background, by its token, because the server may have accepted a renewal whose answer was lost.
//   - Another owner holds the lock, or the grant was replaced by a new one (its token changed): the lock is lost at
//     once.
//   - Somebody ends the grant: the lock is lost at once, with the reason. Servers without Watch report it at the
//     next renewal.
//   - The process is paused for longer than its lease (SIGSTOP, a frozen virtual machine): Held reports the loss at
//     once, and the runner ends before it sends anything. Only the fencing token stops a write that was already on
//     its way.
//   - A claim becomes active while the connection is silent: the runner finds the grant while it lasts, and makes a
//     new claim if it has expired.
//   - A signal: the runner releases the lock, within WithReleaseTimeout, and ends with nil, or with the loss if the
//     trust window had already ended. A failed release is repeated in the background.
//   - The process dies: the lock is free when the TTL has passed.
package lock
