// Package top shows the most contended resources, on a terminal or line by line.
//
// It reads a list of them (ListResources, one page) and updates it with the events of Watch, without a snapshot, which
// cost the database nothing. The page is read again every listInterval, and every dirtyInterval while something is
// unknown that only a list contains. An older list never overwrites an event: each resource has a version.
//
// One goroutine owns the board and draws; others send it what they read. If one of those panics, the owner restores
// the terminal and panics in its place.
//
// Callers may rely on this: whatever ends Screen (a key, the context, an error, a panic), the terminal is restored. While the servers
// cannot be reached, a Snapshot says so and since when, and it goes on by itself.
package top
