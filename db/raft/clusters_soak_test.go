//go:build soak

package raft

const clusters = 3000
