// Package simulation runs whole clusters of servers in bubbles of testing/synctest: the service of each server as `locket
// server` composes it, over its own store, with a log in memory that they share in place of etcd (package ordertest).
// Clients of every kind use them, while logs, disks, clocks and connections fail, and servers crash. Each simulation comes
// from one number, its seed.
//
// Package history explains all answers and events by the rules of package claim, with the versions of the final claims as
// witnesses. All servers must have the same claims in the end, no client may trust that it holds a resource when another one
// does, or when a watch has reported a later grant, and every server must serve again once the faults are over.
//
// When a seed fails, the test prints what happened, in the order of the simulated time. To run one seed again, and to see
// what happens in it:
//
//	go test -race ./tests/simulation -run '^TestSimulation$' -seed 17 -count 1 -v
//
// What comes from the seed: all faults with their times and targets, what the clients ask and when, the outcome of each
// operation of the log and of each write to a disk by its number, and the clocks. Go's scheduler still chooses among
// goroutines at the same simulated time, and the jitter of the servers and of package lock, and their ids, are random. So
// a seed that fails may pass when it runs again, if the failure needs a certain order; -again 50 repeats it.
//
// The limits of the simulation: a pause stops all that a server sends, receives and writes, but its timers go on. Servers call
// one another, and clients of gRPC call them, in this process: packages peer and grpc are tested with processes
// (tests/robustness), and so is etcd (package etcdlog). Clients of REST use connections in memory. Only the log of records loses
// unsynced writes in a crash; the other files are real.
package simulation
