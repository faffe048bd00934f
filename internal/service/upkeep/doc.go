// Package upkeep has the background work on the database. The Sweeper ends leases that have run out. The Janitor deletes
// old history. The Settler grants claims when a quarantine has ended. All are ifrit runners.
package upkeep
