//go:build soak

package backup

import "testing"

// The same with each byte changed in three ways.
func TestDamagedBackupSoak(t *testing.T) {
	damagedBackup(t, func(int) []byte { return []byte{1, 0x80, 0xff} })
}
