package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

const maintainer = "The authors of Locket <locket-service@users.noreply.github.com>"

// packageFormats returns a function that writes the packages of a Linux platform.
func packageFormats(revision string) func(build, string) error {
	return func(b build, folder string) error {
		if b.os != "linux" {
			return nil
		}
		return errors.Join(b.writePackage("deb", revision, folder), b.writePackage("rpm", revision, folder))
	}
}

func (b build) writePackage(format, revision, folder string) (err error) {
	info := &nfpm.Info{
		Name: "locket", Arch: b.arch, Platform: b.os, Version: b.version, Release: revision, MTime: b.date,
		Section: "net", Priority: "optional", Maintainer: maintainer, Homepage: "https://github.com/locket-service/locket",
		Description: "lock service with fair queues and fencing tokens\n" +
			"Locks, claims that wait their turn, read and write locks, presences, elections\n" +
			"and watches of every change, for processes on many machines. This package has\n" +
			"the server, which runs as a service, and the command line.",
	}
	in := filepath.Join(b.source, "deploy", "packages")
	info.Scripts = nfpm.Scripts{
		PostInstall: filepath.Join(in, "postinstall"), PreRemove: filepath.Join(in, "preremove"), PostRemove: filepath.Join(in, "postremove"),
	}
	info.Depends = map[string][]string{"deb": {"passwd"}, "rpm": {"/usr/sbin/useradd"}}[format]
	info.License = map[string]string{"rpm": "none"}[format] // Debian's packages have no such field
	info.RPM.BuildHost = "localhost"                        // a fixed name, not this machine's
	if info.Contents, err = b.contents(format, info); err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if err := packager.Package(info, &content); err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	return os.WriteFile(filepath.Join(folder, packager.ConventionalFileName(info)), content.Bytes(), 0o644)
}

// contents returns the files of a package.
func (b build) contents(format string, info *nfpm.Info) (files.Contents, error) {
	staged := filepath.Join(filepath.Dir(b.program), format)
	if err := os.MkdirAll(staged, 0o755); err != nil {
		return nil, err
	}
	deploy := filepath.Join(b.source, "deploy")
	c := collection{date: b.date, staged: staged}
	c.add(b.program, "/usr/bin/locket", 0o755)
	c.add(filepath.Join(deploy, "systemd", "locket.service"), map[string]string{"deb": "/lib", "rpm": "/usr/lib"}[format]+"/systemd/system/locket.service", 0o644)
	c.addTyped(files.TypeConfigNoReplace, filepath.Join(deploy, "packages", "locket.env"), "/etc/locket/locket.env", 0o640)
	pages := filepath.Join(b.pages, "completions")
	c.add(filepath.Join(pages, completions["bash"]), "/usr/share/bash-completion/completions/locket", 0o644)
	c.add(filepath.Join(pages, completions["zsh"]), map[string]string{"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"}[format]+"/_locket", 0o644)
	c.add(filepath.Join(pages, completions["fish"]), map[string]string{"deb": "/usr/share/fish/vendor_completions.d", "rpm": "/usr/share/fish/completions"}[format]+"/locket.fish", 0o644)
	manual, err := filepath.Glob(filepath.Join(b.pages, "man", "man1", "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range manual {
		c.compress(page, "/usr/share/man/man1/"+filepath.Base(page)+".gz")
	}
	c.add(filepath.Join(deploy, "packages", "copyright"), "/usr/share/doc/locket/copyright", 0o644)
	c.compress(filepath.Join(b.source, "CHANGELOG.md"), "/usr/share/doc/locket/changelog.gz")
	if format == "deb" {
		c.compress(c.write("changelog", debianChangelog(info, b.date)), "/usr/share/doc/locket/changelog.Debian.gz")
		c.add(filepath.Join(deploy, "packages", "lintian-overrides"), "/usr/share/lintian/overrides/locket", 0o644)
	}
	return c.contents, c.err
}

// debianChangelog is the changelog in Debian's format. It has one entry, which refers to the other changelog.
func debianChangelog(info *nfpm.Info, date time.Time) string {
	version := *nfpm.WithDefaults(info)
	number := version.Version
	if version.Prerelease != "" {
		number += "~" + version.Prerelease
	}
	return fmt.Sprintf("locket (%s-%s) unstable; urgency=medium\n\n  * See changelog.gz in this folder.\n\n -- %s  %s\n",
		number, version.Release, maintainer, date.UTC().Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// collection collects the files of a package. It keeps its first error.
type collection struct {
	date     time.Time
	staged   string // a folder for files that are written for the package
	contents files.Contents
	err      error
}

func (c *collection) add(source, destination string, mode fs.FileMode) {
	c.addTyped(files.TypeFile, source, destination, mode)
}

func (c *collection) addTyped(kind, source, destination string, mode fs.FileMode) {
	c.contents = append(c.contents, &files.Content{
		Source: source, Destination: destination, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: c.date},
	})
}

// compress adds a file in the format of gzip, without name and date.
func (c *collection) compress(source, destination string) {
	content, err := os.ReadFile(source)
	var compressed bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	_, writeErr := writer.Write(content)
	c.err = errors.Join(c.err, err, writeErr, writer.Close())
	c.add(c.write(path.Base(destination), compressed.String()), destination, 0o644)
}

// write writes a file for the package, and returns its path.
func (c *collection) write(name, content string) string {
	file := filepath.Join(c.staged, name)
	c.err = errors.Join(c.err, os.WriteFile(file, []byte(content), 0o644))
	return file
}
