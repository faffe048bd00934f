//go:build soak

package replica_test

const clusters = 600
