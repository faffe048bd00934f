//go:build timing

package harness

const timed = true
