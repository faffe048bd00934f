//go:build soak

package replica_test

const everyCase = 1
