package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/locket-service/locket/auth"
	"github.com/locket-service/locket/follow"
)

// addEntry adds an entry to a credentials file. The file is replaced as a whole, since a server may read it at any time,
// with the same mode and owner, and behind the same symbolic links; a folder is locked meanwhile, so that of
// several processes none loses what another one has added. When addEntry returns, the entry is on the disk.
func addEntry(file, entry string) (err error) {
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
	text, info, err := readCredentials(path)
	if err != nil {
		return err
	}
	text = append(text, entry...)
	if _, err := auth.ParseCredentials(text); err != nil {
		return fmt.Errorf("%s: the entry cannot be added at its end; add it by hand (%w)", file, err)
	}
	if err := replace(path, text, info); err != nil {
		return err
	}
	return folder.Sync()
}

// missing returns where a file is to be that is not there. A link that leads nowhere is an error.
func missing(file string) (string, error) {
	if _, err := os.Lstat(file); err == nil {
		return "", fmt.Errorf("%s: it is a link that leads to no file", file)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(file))
	return filepath.Join(folder, filepath.Base(file)), err
}

// readCredentials reads a credentials file so that an entry may follow. info is nil if there is none.
func readCredentials(path string) (text []byte, info os.FileInfo, err error) {
	info, err = os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return []byte("credentials:\n"), nil, nil
	}
	if err == nil {
		err = follow.CheckPrivate(path, info)
	}
	if stat, ok := infoOf(info); err == nil && ok && stat.Nlink > 1 {
		err = fmt.Errorf("%s: it has %d names (hard links); the others would keep what it was", path, stat.Nlink)
	}
	if err == nil {
		text, err = follow.Read("the credentials file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(text) == 0 {
		text = []byte("credentials:\n")
	}
	if text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text, info, nil
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
