//go:build !soak

package raft

// clusters is how many clusters TestCluster has.
const clusters = 30
