//go:build !soak

package replica_test

// everyCase says that TestClusterStore runs one of so many cases, beside those about servers and clocks.
const everyCase = 4
