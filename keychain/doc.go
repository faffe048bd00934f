// Package keychain keeps claims on resources alive, over HTTP: with Locket, or any server that
// speaks its protocol (docs/rest.md; POST and PATCH of /v1/claims/ are enough). It is the claim
// client (docs/sources.md), as a library.
//
// # Who decides
//
// The server decides who holds a resource. An active claim is a lease: the server gives the
// resource to nobody else before the TTL has passed since it took the last renewal. The
// keychain counts from when it sent that, by its own monotonic clock, and stops trusting it a
// margin earlier (package lease). So two clients never trust their leases at the same
// moment, whichever of them is cut off.
//
// The life of a claim is one table of transitions (table.go), without a clock and without I/O. Each claim has a worker,
// a goroutine that callers reach only by commands. It feeds the table with answers and timers, carries out its actions,
// and publishes the state for the caller's handle, the Claim. In short, where (…) is a state that repeats a failed
// request:
//
//	new
//	 │ POST
//	 ▼              201                              PATCH ttl
//	Registering ────────────────────────────► active ◄──────► Renewing
//	 (retrying)                                ▲   ▲           (retrying)
//	 │ 202                                 200 │   │ 200           │
//	 ▼         PATCH status=active             │   │               │ refused: fail
//	waiting ◄───────────────────────► Activating   │               │ lease over: lost
//	               409               (retrying)    │               ▼
//	                                       │   Confirming     Done is closed
//	                                       └──► (retrying)
//	                            200, nobody knows since when
//
//	in order:     active ────────► Releasing ──────► released
//	no longer     waiting, … ────► Withdrawing ────► withdrawn
//	wanted:       an error of
//	              the client ────► Aborting ───────► aborted
//	              Registering ───► Recalling, until it is known what to withdraw
//
// # What happens on failures
//
//   - No answer, one of 5xx, 408, 425, 429, a redirect, or something that does not belong to
//     the protocol: the request is repeated, after pauses that grow, each kind of request by its
//     own parameters (Retries).
//   - A waiting claim asks again: at once if the server delayed its answer (Prefer: wait), otherwise after growing pauses.
//   - The keychain was cut off for the wait TTL while the claim waited, so that it is no longer in the queue (Locket
//     only): it is claimed again, in the time that WithTimeout leaves.
//   - A renewal fails: the claim stays held while the lease lasts. Each attempt has
//     a third of the TTL at most.
//   - The lease's time is up: lost, whatever the server would say. The same holds after the process was stopped for
//     long (SIGSTOP, a frozen virtual machine): Held returns false from the first moment on, and nothing is sent
//     before that check.
//   - The server refuses a request (4xx): a claim that is not active yet has failed, one that
//     is active is lost: it was revoked, or has expired. The keychain asks how and why, for the error. It learns of the
//     end at its next renewal, so that it needs no stream for each claim.
//   - A proxy, a load balancer or a portal answers in the server's place. Locket marks its
//     answers (Locket-Api), and its errors are JSON objects: any other 4xx is not a refusal, any other 2xx not a
//     success. The request is repeated, as if it had no answer. If a server that marks none of its answers refuses a
//     request, it is asked about the claim, which is lost if it has ended. There an empty 200 counts as a success,
//     whoever sent it.
//   - The credentials are refused (401, 403, 407): repeated too, while the lease lasts, and
//     reported at once (WithAlert). Only a claim that Locket has not made yet fails at once.
//   - A server fails: the next one is asked, if there are several (WithFailover).
//   - POST got no answer: it is repeated with the same Idempotency-Key. Locket then finds the
//     claim that the first one made, at its place in the queue. A server that does not know the
//     header makes another claim, behind the first; when the answer of the first comes after
//     all, that claim is withdrawn. If it never comes, the claim is granted, and expires.
//   - The client does not want the claim any more, or the process ends in order: it is
//     ended, which is tried for a bounded time. Otherwise, and when the process dies, it ends with its TTL.
//
// Failures are errors. A handler (WithFatal) may end the program where the original terminates the
// client.
//
// # What a holder must do
//
// Stop when Done is closed. Ask Held before each step that must not be done twice, and send
// Token along with it, if the server gives tokens: the target refuses tokens lower than the highest that it has seen.
// On Linux the monotonic clock stands still while a machine is
// suspended; only the token protects what a laptop does as it wakes up.
package keychain
