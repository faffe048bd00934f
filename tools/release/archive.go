package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// documents are the files of the repository that go into each archive and package.
var documents = []string{"CHANGELOG.md", "README.md", "SECURITY.md"}

// archive writes the archive of a platform: a folder with the program, its man pages, its completions and the documents.
func archive(b build, folder string) (err error) {
	file, err := os.Create(filepath.Join(folder, b.file(".tar.gz")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	a := archiver{tar.NewWriter(compressed), b.date}
	top := b.file("")
	if err := a.add(b.program, top+"/locket", 0o755); err != nil {
		return err
	}
	for _, name := range documents {
		if err := a.add(filepath.Join(b.source, name), top+"/"+name, 0o644); err != nil {
			return err
		}
	}
	if err := a.addTree(b.pages, top); err != nil {
		return err
	}
	return errors.Join(a.Close(), compressed.Close())
}

// archiver writes files that do not depend on this machine: without an owner, and with the date of the commit.
type archiver struct {
	*tar.Writer
	date time.Time
}

func (a archiver) add(file, name string, mode int64) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return a.write(name, content, mode)
}

func (a archiver) write(name string, content []byte, mode int64) error {
	if err := a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: a.date}); err != nil {
		return err
	}
	_, err := a.Write(content)
	return err
}

// addTree adds the files below a folder, in the order of their names.
func (a archiver) addTree(folder, below string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return a.add(path, below+"/"+filepath.ToSlash(name), 0o644)
	})
}

// writeSums writes SHA256SUMS for all files of a folder, in the format of sha256sum --check.
func writeSums(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), file.Name())
	}
	return os.WriteFile(filepath.Join(folder, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
