package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// build is the program, built for a platform.
type build struct {
	os, arch string
	source   string // the folder with the files of the commit
	program  string // the file
	pages    string // the folder of the files that the program generates: man/man1, completions
	info     *debug.BuildInfo
	version  string    // without the v: 1.2.3, or 0.0.0-20261122195959-0123456789ab of a commit without a tag
	date     time.Time // of the commit: of every file of the release
}

func (b build) platform() string { return b.os + "/" + b.arch }

// file returns the name of a file of the release.
func (b build) file(suffix string) string {
	return fmt.Sprintf("locket_%s_%s_%s%s", b.version, b.os, b.arch, suffix)
}

// checkOut clones the repository of the current folder, so that a release has committed files only.
func checkOut(commit, folder string) error {
	id, err := run("", nil, "git", "rev-parse", "--verify", commit+"^{commit}")
	if err != nil {
		return err
	}
	if _, err := run("", nil, "git", "clone", "--quiet", "--shared", "--no-checkout", ".", folder); err != nil {
		return err
	}
	_, err = run(folder, nil, "git", "checkout", "--quiet", "--detach", strings.TrimSpace(id))
	return err
}

// buildAll builds the program for each platform. The build for the platform of this machine then writes the man pages and the completions.
func buildAll(source, folder string, platforms []string) ([]build, error) {
	var builds []build
	var own string
	for _, platform := range platforms {
		b := build{source: source, pages: filepath.Join(folder, "pages")}
		b.os, b.arch, _ = strings.Cut(platform, "/")
		b.program = filepath.Join(folder, b.os+"_"+b.arch, "locket")
		env := []string{"CGO_ENABLED=0", "GOOS=" + b.os, "GOARCH=" + b.arch, "GOFLAGS=", "GOWORK=off"}
		if _, err := run(source, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", b.program, "./cmd/locket"); err != nil {
			return nil, err
		}
		if err := b.readInfo(); err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		if b.os == runtime.GOOS && b.arch == runtime.GOARCH {
			own = b.program
		}
		builds = append(builds, b)
	}
	if own == "" {
		return nil, fmt.Errorf("--platforms: %s/%s, this machine's platform, must be among them", runtime.GOOS, runtime.GOARCH)
	}
	return builds, writePages(own, filepath.Join(folder, "pages"))
}

// readInfo reads the build information that Go has written into the program.
func (b *build) readInfo() (err error) {
	if b.info, err = buildinfo.ReadFile(b.program); err != nil {
		return err
	}
	if b.setting("vcs.revision") == "" || b.setting("vcs.modified") != "false" {
		return errors.New("the program does not say its commit")
	}
	b.version = strings.TrimPrefix(b.info.Main.Version, "v")
	b.date, err = time.Parse(time.RFC3339, b.setting("vcs.time"))
	return err
}

// setting returns a setting of the build, "" if it has none.
func (b build) setting(key string) string {
	for _, setting := range b.info.Settings {
		if setting.Key == key {
			return setting.Value
		}
	}
	return ""
}

// completions are the shells with completions, and the files that the shells read.
var completions = map[string]string{"bash": "locket.bash", "zsh": "_locket", "fish": "locket.fish"}

// writePages runs the program to write its man pages and completions.
func writePages(program, folder string) error {
	if _, err := run("", nil, program, "man", "--dir", filepath.Join(folder, "man", "man1")); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "completions"), 0o755); err != nil {
		return err
	}
	for shell, file := range completions {
		text, err := run("", nil, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "completions", file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a command in a folder, and returns its standard output.
func run(folder string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, errs.String())
	}
	return out.String(), nil
}
