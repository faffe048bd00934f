// Package top keeps what is shown of the resources for which most claims wait, on a terminal or line by line.
//
// It begins with a list of them (ListResources, one page) and changes it by what Watch tells, without a snapshot: so it
// costs the database nothing while nothing is asked. The page is asked for again every listInterval, and every
// dirtyInterval while something is not known that only a list tells. What came by the feed is never overwritten by an older
// list: each resource has a version.
//
// One goroutine has the board, draws and decides; others bring it what they read. If one of them panics, the first
// panics in its place, after it has restored the terminal.
//
// Callers may rely on this: whatever ends Screen (a key, the context, an error, a panic), the terminal is as it was; while
// the servers cannot be reached, a Snapshot says so and since when, and it goes on by itself.
package top
