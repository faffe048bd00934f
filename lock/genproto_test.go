package lock_test

// ifrit requires an old version of google.golang.org/genproto, which contains packages that are separate modules today
// (googleapis/rpc, googleapis/api). A module that requires ifrit and this module would find these packages twice, and `go mod tidy`
// would fail, unless one of the two requires a later genproto. This import makes go.mod require it.
import _ "google.golang.org/genproto/googleapis/type/dayofweek"
