package lock_test

// ifrit requires google.golang.org/genproto of the time when it had the packages that are in modules of their own today
// (googleapis/rpc, googleapis/api). A module that requires ifrit and this one would find them twice, which is an error of
// `go mod tidy`, unless one of the two requires a later genproto: this import has go.mod do so.
import _ "google.golang.org/genproto/googleapis/type/dayofweek"
