package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials writes the modules that the program was built from, as its build information lists them, in the format
// CycloneDX. It has no serial number, so that the same program always gives the same file.
func billOfMaterials(b build, folder string) (err error) {
	bom := cdx.NewBOM()
	program := component(cdx.ComponentTypeApplication, b.info.Main.Path, b.info.Main.Version)
	standard := component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(b.info.GoVersion, "go"))
	bom.Metadata = &cdx.Metadata{Timestamp: b.date.UTC().Format(time.RFC3339), Component: &program}
	components, needs := []cdx.Component{standard}, []string{standard.BOMRef}
	for _, module := range b.info.Deps {
		c, err := library(module)
		if err != nil {
			return err
		}
		components, needs = append(components, c), append(needs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &needs}}
	file, err := os.Create(filepath.Join(folder, b.file(".cdx.json")))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

func component(kind cdx.ComponentType, name, version string) cdx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", name, version)
	return cdx.Component{Type: kind, BOMRef: url, Name: name, Version: version, PackageURL: url}
}

// library returns the component of a module, with the hash of go.sum.
func library(module *debug.Module) (cdx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	c := component(cdx.ComponentTypeLibrary, module.Path, module.Version)
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	if err != nil || len(sum) == 0 {
		return c, fmt.Errorf("module %s has no checksum", module.Path)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}
	return c, nil
}
