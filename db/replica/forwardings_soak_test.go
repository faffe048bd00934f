//go:build soak

package replica

const forwardings = 600
