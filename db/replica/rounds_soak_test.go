//go:build soak

package replica_test

const kills, failures, flips = 100, 500, 300
