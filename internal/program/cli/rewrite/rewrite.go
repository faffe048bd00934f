// Package rewrite changes files that other processes read and change meanwhile.
//
// Callers may rely on this: readers see the old text or the new one; concurrent changes are not lost; mode, owner and symbolic links stay;
// when File returns, the change is on the disk, and if it returns an error, nothing has changed.
package rewrite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/locket-service/locket/internal/base/follow"
)

// File replaces the text of a file by the result of change, which gets the present text and info: both nil if the file does not exist.
// Errors call the file what. A file with hard links is refused, because its other names would keep the old text.
func File(what, file string, change func(text []byte, info os.FileInfo) ([]byte, error)) (err error) {
	path, err := filepath.EvalSymlinks(file)
	if errors.Is(err, os.ErrNotExist) {
		path, err = missing(file)
	}
	if err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }() // which unlocks it
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", folder.Name(), err)
	}
	text, info, err := read(what, path)
	if err != nil {
		return err
	}
	if text, err = change(text, info); err != nil {
		return err
	}
	if err := replace(path, text, info); err != nil {
		return err
	}
	return folder.Sync()
}

// missing returns the path to create a file at. A link that leads nowhere is an error.
func missing(file string) (string, error) {
	if info, err := os.Lstat(file); err == nil && info.Mode()&os.ModeSymlink != 0 { // otherwise it has just been made
		return "", fmt.Errorf("%s: it is a link that leads to no file", file)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	return filepath.Join(folder, filepath.Base(file)), err
}

func read(what, path string) (text []byte, info os.FileInfo, err error) {
	info, err = os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if stat, ok := infoOf(info); err == nil && ok && stat.Nlink > 1 && !info.IsDir() {
		err = fmt.Errorf("%s: it has %d names (hard links); the others would keep the old text", path, stat.Nlink)
	}
	if err == nil {
		text, err = follow.Read(what, path)
	}
	return text, info, err
}

func infoOf(info os.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return stat, ok
}

// replace writes a file beside another one, with its mode and owner, and puts it in its place.
func replace(path string, text []byte, before os.FileInfo) (err error) {
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(text)
	if stat, ok := infoOf(before); err == nil && ok {
		err = next.Chown(int(stat.Uid), int(stat.Gid))
	}
	if err == nil && before != nil {
		err = next.Chmod(before.Mode().Perm())
	}
	if err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
