package follow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// MaxSize is the size of the largest file that is read, in bytes.
const MaxSize = 16 << 20

// byteOrderMark begins the files of some editors. It is no part of their text.
var byteOrderMark = []byte("\ufeff")

// look is the result of reading some paths.
type look struct {
	// stamp differs when any of the files was written to, replaced, or cannot be read.
	stamp    string
	digest   string // of the contents
	contents [][]byte
	err      error
}

// lookAt reads files. It calls reading with each path before it opens that.
func lookAt(paths []string, private bool, reading func(path string)) (l look) {
	digest := sha256.New()
	for _, path := range paths {
		var content []byte
		if path != "" {
			reading(path)
			info, text, err := readFile(path)
			if err == nil && private {
				err = CheckPrivate(path, info)
			}
			if err != nil {
				return look{stamp: err.Error(), err: err}
			}
			l.stamp += stampOf(info)
			content = text
		}
		l.contents = append(l.contents, bytes.TrimPrefix(content, byteOrderMark))
		if len(paths) > 1 { // of one file it equals the output of sha256sum
			fmt.Fprintf(digest, "%d:", len(content))
		}
		_, _ = digest.Write(content)
	}
	l.digest = "sha256:" + hex.EncodeToString(digest.Sum(nil))
	l.stamp += l.digest
	return l
}

// CheckPrivate returns an error for a file that others than its owner and its group may read or write.
func CheckPrivate(path string, info os.FileInfo) error {
	if others := info.Mode().Perm() & 0o006; others != 0 {
		return fmt.Errorf("%s: others may read or write it (mode %04o); take that away: chmod o-rwx %s", path, info.Mode().Perm(), path)
	}
	return nil
}

func readFile(path string) (os.FileInfo, []byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat() // first: a write while the file is read must be noticed later
	if err != nil {
		return nil, nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err == nil && len(content) > MaxSize {
		err = fmt.Errorf("%s: has more than %d bytes, which is the limit", path, MaxSize)
	}
	return info, content, err
}

// Read reads a file once. A file that cannot be read within 5 s is an error, which names it.
func Read(what, path string) ([]byte, error) {
	f := New(what, One(func(content []byte) ([]byte, error) { return content, nil }), path)
	return f.within(context.Background(), openTimeout)
}
