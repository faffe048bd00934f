// Package top shows the most contended resources, on a terminal or line by line.
//
// It reads a list of them (ListResources, one page) for each picture, at most twice a second and for at most a tenth of the
// time, and counts the events of Watch, without a snapshot, for the rates.
//
// One goroutine owns the board and draws; others send it what they read. If one of those panics, the owner restores
// the terminal and panics in its place.
//
// Callers may rely on this: whatever ends Screen (a key, the context, an error, a panic), the terminal is restored. While the servers
// cannot be reached, a Snapshot says so and since when, and it goes on by itself.
package top
