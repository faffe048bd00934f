// Package server turns a configuration into a running server.
//
// Serve opens the log, the store and the certificates, and runs all long-lived runners in one ordered ifrit group: the
// parts of the Service, then the listeners. They stop in reverse order, so that no request arrives before it can be
// answered, and no running request loses what it needs. When one runner ends, all do.
//
// Callers may rely on this: Config has every setting, with its unit and its flag; Serve returns only when everything
// has stopped and the store is closed; an invalid configuration is refused before a file is opened. Package cli reads
// the settings (flags, environment, files); this package reads none, except $GOGC.
package server
