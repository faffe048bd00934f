//go:build !soak

package filelog_test

// rounds is how many disks TestCrash has, and stride how many bits TestFlippedBits goes on after each.
const (
	rounds = 150
	stride = 29
)
