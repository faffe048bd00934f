package lock

import "github.com/locket-service/locket/internal/base/ids"

// UniqueOwner returns an owner that nobody else has: HOST/PROCESS/RANDOM. It differs for every
// call. A runner whose owner is left empty has one.
//
// The server knows callers by their owners: a caller that locks as the owner that holds a lock renews it.
// So two processes, or two runners of one process, that use the same owner both hold the lock.
// A host's name is such an owner when a new process starts before the old one has ended, as in
// a rolling restart.
func UniqueOwner() string { return ids.NewOwner() }
