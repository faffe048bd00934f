//go:build !soak

package replica_test

// clusters is how many clusters TestCluster has.
const clusters = 6
