// Package deadlock keeps claims from causing deadlocks.
//
// A deadlock (package waits says what one is) is caused by a claim that begins to wait. So a claim that would have to wait
// is first refused by its transaction, which costs those nothing that need not wait (claim.Create.LookFirst). Then the
// server looks: the claim is refused for good if it would cause a deadlock, and nothing of it was committed. Otherwise it is
// made, and may wait.
//
// Two requests may cause a deadlock together, after both have looked, at two servers or in one batch. So the server
// looks once more when the claim waits (Check). Of the two at least the one whose commit was later sees the deadlock. The claim
// that joined last, by its enqueue version and its id, is withdrawn, by the server that made it and by no other: so no
// claim is withdrawn whose request was answered, or allows deadlocks. Whoever sees the deadlock and did not join last leaves those after it
// the time to go, one after the other, and is withdrawn if they do not: they may allow deadlocks, or have looked too early.
package deadlock
