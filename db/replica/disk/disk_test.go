package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/db/replica/disk"
	"github.com/locket-service/locket/db/replica/disk/disktest"
)

// TestHeldFolder: the Sync of a folder that is held opens nothing.
func TestHeldFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	folder := disktest.Folder(path)
	held, err := disk.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".moved"); err != nil { // what is opened now is not found
		t.Fatal(err)
	}
	if err := folder.Sync(); err == nil {
		t.Error("the folder is found")
	}
	if err := held.Sync(); err != nil {
		t.Error(err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
}

// TestSyncThatFails: the error of a file that cannot be synced names it.
func TestSyncThatFails(t *testing.T) {
	file, err := disktest.Folder("/dev").Open("null") // that has nothing to sync
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("the error is %v", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
