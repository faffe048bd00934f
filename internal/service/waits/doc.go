// Package waits finds out which owners wait for each other, and ends deadlocks (Detector).
//
// The owners are sessions, and owners of claims without a session. A waiting claim, and so its owner, waits for the
// holders of its resource that it conflicts with, and for the claims before it in the queue that it conflicts with. A
// deadlock is a cycle of owners that wait for each other, over at least two owners and two resources: none of its claims
// will ever be granted. An owner that waits for itself, because it holds the resource or waits for it already, is not in a
// deadlock: its threads may wait independently of each other. Nor are claims without an owner.
//
// A search for a deadlock visits at most MaxVisited waits, and as many owners, which is enough for a deadlock of 300
// owners. It reads of each queue the first maxAhead holders and waiters, and does not find a deadlock that involves claims
// behind these. So its cost does not depend on the length of the queues. A survey requires that claims wait for at most
// db.MaxContended resources.
package waits
