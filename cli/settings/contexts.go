package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// contextFile is the file of contexts: named ways to connect, as docs/cli.md describes them.
type contextFile struct {
	path string

	// Current is the context for commands that name none.
	Current  string                   `yaml:"current"`
	Contexts map[string]*namedContext `yaml:"contexts"`
}

// namedContext has the settings of a connection. What it leaves out has its default.
type namedContext struct {
	Address  addressList `yaml:"address"`
	TLSCA    string      `yaml:"tls_ca"`
	TLSCert  string      `yaml:"tls_cert"`
	TLSKey   string      `yaml:"tls_key"`
	Insecure bool        `yaml:"insecure"`
	Timeout  string      `yaml:"timeout"`
}

// addressList is a list, or a string with commas.
type addressList []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (l *addressList) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return node.Decode((*[]string)(l))
	}
	*l = splitList(node.Value)
	return nil
}

// contextValues are the settings of a context, by the names of the flags.
type contextValues struct {
	source   string
	settings map[string]string
}

// defaultContextFile returns the path of the file of contexts, "" if there is no home.
func defaultContextFile() string {
	folder := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(folder) { // as the XDG specification says
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "locket", "contexts.yaml")
}

// readContexts reads the file of contexts. It may be missing unless it must be there.
func readContexts(path string, required bool) (*contextFile, error) {
	file := &contextFile{path: path}
	content, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return file, nil
	}
	if err != nil {
		return nil, usageError("the file of contexts: %w", err)
	}
	defer content.Close()
	decoder := yaml.NewDecoder(content)
	decoder.KnownFields(true)
	if err := decoder.Decode(file); err != nil && !errors.Is(err, io.EOF) { // an empty file is EOF
		return nil, usageError("the file of contexts %s: %w", path, err)
	}
	return file, nil
}

// values returns the settings of a context.
func (f *contextFile) values(name string) (contextValues, error) {
	named, known := f.Contexts[name]
	if !known {
		return contextValues{}, usageError("there is no context %q in %s; it has: %s", name, f.path, f.names())
	}
	if named == nil {
		named = &namedContext{}
	}
	values := map[string]string{
		"address": strings.Join(named.Address, ","),
		"tls-ca":  f.relative(named.TLSCA), "tls-cert": f.relative(named.TLSCert), "tls-key": f.relative(named.TLSKey),
		"timeout": named.Timeout, "insecure": strconv.FormatBool(named.Insecure),
	}
	return contextValues{source: fmt.Sprintf("context %q in %s", name, f.path), settings: values}, nil
}

// relative returns a path as seen from the file's folder.
func (f *contextFile) relative(path string) string {
	if path == "" || path == systemCA || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

func (f *contextFile) names() string {
	if len(f.Contexts) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(f.Contexts)), ", ")
}

// completeContexts is for the shells.
func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s := &sources{flags: cmd.Flags()}
	path := s.value("context-file")
	if path == "" {
		path = defaultContextFile()
	}
	file, err := readContexts(path, false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
}
