// Package processors has Go run a server's goroutines on one processor while few requests come at the same time.
//
// A request passes from goroutine to goroutine, and each of these steps wakes a thread for another processor that is idle, in case
// there is more to do. With few requests there is not, and the wake-ups are a quarter of what a request takes, and a third of the
// processor time. With many requests the other processors are needed.
package processors
