//go:build !soak

package raft_test

// How often TestKill kills, TestFailingDisk fails, and how many bits TestFlippedBits flips, an eighth of them.
const kills, failures, flips = 3, 12, 6
