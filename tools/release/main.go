// Command release makes the files of a release of Locket from a commit of the repository in the current folder: for each
// platform an archive and a list of the modules that the program was built from, and the checksums of all files. The same
// commit and the same version of Go give the same bytes on every machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	o := options{}
	flag.StringVar(&o.out, "out", "dist", "the folder of the release, which is made anew")
	flag.StringVar(&o.commit, "commit", "HEAD", "the commit to release")
	flag.StringVar(&o.revision, "revision", "1", "the revision of the packages, for another package of the same version")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms to build, as OS/ARCH,…")
	flag.Parse()
	o.platforms = strings.Split(*platforms, ",")
	if err := release(o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type options struct {
	out, commit string
	revision    string
	platforms   []string // like linux/amd64
}

// release makes the folder of a release. The folder gets its name when it is complete.
func release(o options) error {
	work, err := os.MkdirTemp("", "locket-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	source := filepath.Join(work, "source")
	if err := checkOut(o.commit, source); err != nil {
		return err
	}
	made := filepath.Join(work, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	builds, err := buildAll(source, filepath.Join(work, "build"), o.platforms)
	if err != nil {
		return err
	}
	for _, b := range builds {
		for _, make := range []func(build, string) error{archive, billOfMaterials, packageFormats(o.revision)} {
			if err := make(b, made); err != nil {
				return fmt.Errorf("%s: %w", b.platform(), err)
			}
		}
	}
	if err := writeImage(builds, work, made); err != nil {
		return err
	}
	if err := writeSums(made); err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	return os.CopyFS(o.out, os.DirFS(made))
}
