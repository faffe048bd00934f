// Package access says who calls (Caller) and what the caller may do: its Rules and its Quota. All of that is data, which
// travels with a command into the transaction that carries it out; what it means for claims is decided by package claim.
// Package auth reads it from files. A decision depends on the data alone: no I/O, no clock.
package access
