// Package deadlock keeps claims from causing deadlocks.
//
// A deadlock (package waits defines it) is caused by a claim that begins to wait. So a transaction first refuses a claim
// that would wait (claim.Create.LookFirst); claims that are granted at once cost nothing more. Then the server searches.
// If the claim would cause a deadlock, it is refused, and nothing of it was committed. Otherwise it is made, and may
// wait.
//
// Two requests may cause a deadlock together if both searched before either was committed, at two servers or in one
// batch. So the server searches once more when the claim waits (Check). Of two such claims, at least the one that was
// committed later finds the deadlock. The claim that joined last, by its enqueue version and its id, is withdrawn, and
// only by the server that made it: no claim is withdrawn whose request was answered, or that allows deadlocks. A server
// whose claim did not join last waits for the withdrawal of those that joined after it, one after the other, and
// withdraws its own if they stay: they may allow deadlocks, or have searched too early.
package deadlock
