//go:build !soak

package replica

// clusters is how many clusters TestCluster has.
const clusters = 30
