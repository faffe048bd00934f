package lock

import "github.com/locket-service/locket/internal/base/ids"

// UniqueOwner returns a new owner, HOST/PROCESS/RANDOM, which differs for every call. It is the default owner of
// runners.
//
// A caller that locks as the owner of the current holder renews that lock. So if two processes, or two runners of one
// process, use the same owner, both hold the lock. A host's name is not unique: in a rolling restart the new process
// starts before the old one has ended.
func UniqueOwner() string { return ids.NewOwner() }
