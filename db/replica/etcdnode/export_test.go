package etcdnode

// CommitAll is commitAll.
var CommitAll = commitAll
