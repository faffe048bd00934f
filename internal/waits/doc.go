// Package waits finds out which owners wait for which, and finds deadlocks.
//
// The owners are sessions, and owners of claims without one. A waiting claim waits for the
// holders of its resource that it conflicts with, and for the claims before it in the queue that
// it conflicts with; and so does its owner. A deadlock is a circle that leads from an owner over others back to
// itself, over two resources at least: no claim in it will ever be granted. An owner that waits for
// itself, because it holds what it asks for, is in no deadlock: its threads may wait independently of each other.
// Neither are claims without an owner.
//
// A search reads MaxRead claims at most, and of each queue the holders and the first of the line
// (maxAhead): what a deadlock further back waits for is not found. It costs the same however long the queues are.
package waits
