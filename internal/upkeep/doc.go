// Package upkeep keeps the database in order when no request does: the Sweeper ends leases
// that have run out, the Janitor deletes history that is old enough. Both are ifrit
// runners.
package upkeep
