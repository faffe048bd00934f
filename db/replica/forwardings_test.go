//go:build !soak

package replica

// forwardings is how often TestForwarding plays.
const forwardings = 3
