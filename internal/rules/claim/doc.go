// Package claim holds the rules of one resource's queue of claims, and nothing
// else: no I/O, no clock. A Queue, a Command and an Instant go in; the changed
// queue and the claims that changed come out. The servers run these rules inside
// the database's transactions, and package tests/history uses them as the oracle for
// histories that are recorded from real servers.
//
// The database is authoritative. A Queue has the part read by one transaction: the resource's row, its exclusive
// holder, the claims that the commands name, and as much of the head of the queue as the rules ask for.
//
//	          ┌──────────── withdrawn, aborted, revoked ───────────┐
//	          │                                                    ▼
//	   ┌───────────┐  granted, in order   ┌──────────┐        ┌─────────┐
//	──►│  waiting  │─────────────────────►│  active  │───────►│  final  │
//	   └───────────┘  (a new token)       └──────────┘        └─────────┘
//	                                       ▲ │   released, expired, aborted,
//	                                       └─┘   withdrawn, revoked
//	                                      renewed
//
// What holds after every command:
//
//   - A resource has one exclusive holder, which takes all units, or holders that take some, no
//     more than there are: of an unlimited number for shared claims. Or it has none.
//   - Claims are granted in order of arrival; a shared claim does not
//     overtake an exclusive one that waits.
//   - A resource with waiters is not free.
//   - Every change moves the resource's version to max(version+1, now), so that
//     versions, and the fencing tokens that are drawn from them, only rise.
//   - Final states stay final.
//
// A lease that has run out is taken away only when somebody else wants the
// resource, or by the sweep; until then its holder may still renew it.
package claim
