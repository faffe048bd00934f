// Package stream holds locks over sessions: the stream of a session and its heartbeats (stream.go), its held and
// awaited resources (table.go), its commands (command.go), and the goroutines that share its claims (queue.go,
// hold.go).
package stream
