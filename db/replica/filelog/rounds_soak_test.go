//go:build soak

package filelog_test

const (
	rounds = 20_000
	stride = 1
)
