//go:build !timing

package harness

const timed = false
