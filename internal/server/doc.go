// Package server turns a configuration into a running server.
//
// Serve opens the store, the log and the certificates, and runs all long-lived runners in
// one ordered ifrit group: committer, sweeper, follower, janitor, HTTP, gRPC. They start in this
// order, and stop in reverse, so that no request arrives before it can be answered, and none
// under way loses what it needs. When one of them ends, all do.
//
// Callers may rely on this: Config has every setting, with its unit and its flag; Serve returns
// only when everything has stopped and the store is closed; a wrong configuration is refused
// before a file is opened. Where settings come from (flags, environment, files) is the responsibility
// of package cli: nothing here reads them, except $GOGC.
package server
