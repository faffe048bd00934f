//go:build soak

package wal_test

const (
	rounds = 20_000
	stride = 1
)
