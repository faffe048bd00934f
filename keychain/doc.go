// Package keychain keeps claims on resources alive over HTTP, at Locket or any server with the same protocol
// (docs/rest.md; POST and PATCH of /v1/claims/ are enough).
//
//	kc, err := keychain.New("http://127.0.0.1:8892")
//	if err != nil {
//		return err
//	}
//	defer kc.Close()
//
//	claim, err := kc.Claim(ctx, "nightly", keychain.WithTTL(15*time.Second)) // waits in the queue
//	claim.Token()             // the fencing token: send it with each write
//	<-claim.Done()            // closed when the claim is lost; claim.Err() has the reason
//	err = claim.Release(ctx)
//
// Package lock does the same over gRPC, and more. The keychain is for programs that reach Locket only over HTTP, and
// follows the claim client of docs/sources.md.
//
// # What a holder must do
//
// Stop working when Done is closed. Send Token with each write, so that the target can refuse a late one: a process
// may be paused between its last check and its write. Before a step that must not be done twice, check Held. On Linux
// the monotonic clock stands still while a machine sleeps, so only the token protects against a laptop that wakes up.
//
// # Errors
//
//   - *AnswerError: the server refused a request.
//   - ErrClaimed: this keychain already has a claim on the resource.
//   - ErrTimeout: the claim was not active within WithTimeout.
//   - ErrLost: the claim was active and is lost. It wraps an *AnswerError, or ErrTimeUp.
//   - ErrReleased, ErrClosed, ErrNotEnded: the program released the claim or closed the keychain.
//
// # Leases
//
// The server decides who holds a resource. An active claim is a lease: the server gives the resource to nobody else
// until the TTL has passed since it received the last renewal. The keychain counts from the time when it sent that
// renewal, on its own monotonic clock, and stops trusting it a margin earlier (WithMargin). So two clients never trust
// their leases at the same moment, whichever of them is cut off.
//
// Each claim has a worker goroutine, which follows this table of states; (…) is a state that repeats a failed request:
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
// # Failures
//
//   - No answer, an answer of 5xx, 408, 425 or 429, a redirect, or an answer that does not belong to the protocol:
//     the request is repeated after growing pauses (Retries).
//   - A claim waits: the keychain asks again, at once if the server delayed its answer (Prefer: wait), otherwise
//     after growing pauses.
//   - The keychain was cut off for the wait TTL, and its claim left the queue (Locket only): it claims again, within
//     WithTimeout.
//   - A renewal fails: the claim stays held while the lease lasts. Each attempt takes at most a third of the TTL.
//   - The lease is over, or the process was paused for longer than the lease: the claim is lost. Held returns false
//     at once, and nothing is sent before that check.
//   - The server refuses a request (4xx): a claim that is not active yet fails. An active claim is lost: it was
//     revoked, or has expired. The keychain asks the server for the reason. It learns of such an end at its next
//     renewal.
//   - A proxy answers instead of the server. Locket marks its answers (Locket-Api), and its errors are JSON objects;
//     the request is repeated after any other answer. A server that marks no answers is asked for the claim after a
//     refusal; its empty 200 counts as success.
//   - The credentials are refused (401, 403, 407): the request is repeated while the lease lasts, and WithAlert
//     reports it at once. If Locket refuses a new claim, the claim fails at once.
//   - A server fails: the keychain asks the next one (WithFailover).
//   - POST got no answer: it is repeated with the same Idempotency-Key. Locket then finds the first claim, at its
//     place in the queue. A server that does not know the header makes a second claim; if the first answer arrives
//     later, the first claim is withdrawn, otherwise it expires.
//   - The program releases the claim or closes the keychain, and no server can be reached within WithReleaseTimeout:
//     the claim ends with its TTL. The same happens when the process dies.
package keychain
