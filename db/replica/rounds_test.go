//go:build !soak

package replica_test

// How often TestKill kills, TestFailingDisk fails, and how many bits TestFlippedBits and TestFlippedBitsOfHistory flip, an eighth of them.
const kills, failures, flips = 3, 12, 6
