//go:build soak

package raft_test

const kills, failures, flips = 100, 500, 300
