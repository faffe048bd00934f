//go:build !soak

package replica_test

// clusters is how many clusters TestCluster has. TestClusterStore runs one of so many cases, beside those about servers and
// clocks.
const clusters, everyCase = 2, 4
