//go:build soak

package replica_test

const clusters, everyCase = 600, 1
