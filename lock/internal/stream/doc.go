// Package stream holds locks by sessions: the stream of a session and its heartbeats (stream.go), what it holds and waits for
// (table.go), its commands (command.go), and the goroutines that share its claims (queue.go, hold.go).
package stream
