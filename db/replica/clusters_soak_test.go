//go:build soak

package replica

const clusters = 3000
