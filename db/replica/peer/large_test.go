//go:build !soak

package peer_test

// large is how large a large snapshot is.
const large = 48 << 20
