package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// imageUser is the user that runs the program in the image, as a number, so that Kubernetes can check that it is not root.
	imageUser = 65532
	// dataFolder is the folder of the data, as in the packages.
	dataFolder = "var/lib/locket"
)

// writeImage writes the image of all Linux builds, as an archive of an OCI layout.
func writeImage(builds []build, work, folder string) (err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var last build
	for _, b := range builds {
		if b.os != "linux" {
			continue
		}
		image, err := b.image()
		if err != nil {
			return err
		}
		last = b
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	if last.os == "" {
		return nil
	}
	path, err := layout.Write(filepath.Join(work, "image"), empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": last.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, "locket_"+last.version+"_image.tar"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	a := archiver{tar.NewWriter(file), last.date}
	return errors.Join(a.addTree(string(path), "."), a.Close())
}

// image returns the image of a platform: the program, a user, and an empty folder for the data.
func (b build) image() (v1.Image, error) {
	files, err := b.imageFiles()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: b.date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: b.date}
	config.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/" + dataFolder, StopSignal: "SIGTERM",
		Entrypoint: []string{"/usr/bin/locket"}, Cmd: []string{"server"},
		// It listens for other machines, so it requires a certificate, or LOCKET_INSECURE=true.
		Env:          []string{"PATH=/usr/bin", "LOCKET_DATA=/" + dataFolder, "LOCKET_GRPC_ADDRESS=:8891", "LOCKET_HTTP_ADDRESS=:8892"},
		ExposedPorts: map[string]struct{}{"8891/tcp": {}, "8892/tcp": {}},
		Volumes:      map[string]struct{}{"/" + dataFolder: {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "locket", "org.opencontainers.image.version": b.version,
			"org.opencontainers.image.revision": b.setting("vcs.revision"), "org.opencontainers.image.source": "https://" + b.info.Main.Path,
		},
	}
	return mutate.ConfigFile(image, config)
}

// imageFiles returns the layer of the image.
func (b build) imageFiles() ([]byte, error) {
	var layer bytes.Buffer
	a := archiver{tar.NewWriter(&layer), b.date}
	user := []byte("locket:x:65532:65532:locket:/" + dataFolder + ":/sbin/nologin\n")
	err := errors.Join(
		a.add(b.program, "usr/bin/locket", 0o755),
		a.write("etc/passwd", user, 0o644),
		a.write("etc/group", []byte("locket:x:65532:\n"), 0o644),
		a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dataFolder + "/", Mode: 0o700, Uid: imageUser, Gid: imageUser, ModTime: b.date}),
		a.Close(),
	)
	return layer.Bytes(), err
}
