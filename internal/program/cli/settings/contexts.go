package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/rewrite"
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
	// CredentialFile, or the fields that begin with OIDC, are where the credential comes from.
	CredentialFile       string `yaml:"credential_file"`
	OIDCIssuer           string `yaml:"oidc_issuer"`
	OIDCClientID         string `yaml:"oidc_client_id"`
	OIDCClientSecretFile string `yaml:"oidc_client_secret_file"`
	OIDCScopes           string `yaml:"oidc_scopes"`
	OIDCAudience         string `yaml:"oidc_audience"`
	OIDCCA               string `yaml:"oidc_ca"`
	Timeout              string `yaml:"timeout"`
}

// addressList is a list, or a string with commas.
type addressList []string

func (l *addressList) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode {
		return node.Decode((*[]string)(l))
	}
	*l = SplitList(node.Value)
	return nil
}

// SystemCA stands for the system's authorities where the name of a file is asked for.
const SystemCA = "system"

// WithContexts returns the sources of a command whose flags context-file and context choose a
// context. Without them it is the current one of the user's own file, if there is one.
func WithContexts(flags *pflag.FlagSet) (*Sources, error) {
	s := New(flags)
	file, given := s.LookUp("context-file")
	name, chosen := s.LookUp("context")
	contexts, err := readContexts(cmp.Or(file, defaultContextFile()), given != "")
	if err != nil {
		return nil, err
	}
	if chosen == "" {
		name = contexts.Current
	}
	if name == "" {
		return s, nil
	}
	s.file, err = contexts.values(name)
	return s, err
}

// Contexts returns the contexts that there are, in the order of their names.
func Contexts(flags *pflag.FlagSet) ([]Context, error) {
	file, err := readContexts(contextFileOf(flags), false)
	if err != nil {
		return nil, err
	}
	current := cmp.Or(os.Getenv(Variable("context")), file.Current)
	contexts := make([]Context, 0, len(file.Contexts))
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		values, err := file.values(name)
		if err != nil {
			return nil, err
		}
		contexts = append(contexts, Context{Name: name, Current: name == current, Settings: values.settings})
	}
	return contexts, nil
}

// Context is a named way to connect.
type Context struct {
	Name string
	// Current says that commands use it that name none.
	Current bool
	// Settings are its settings, by the names of the flags.
	Settings map[string]string
}

func contextFileOf(flags *pflag.FlagSet) string {
	return cmp.Or(New(flags).Value("context-file"), defaultContextFile())
}

// currentLine is the line of the file with the name of the current context.
var currentLine = regexp.MustCompile(`(?m)^current:[^#\n]*?([ \t]*(?:#.*)?)$`)

// Use has a context be the current one, and returns the path of the file that says so. The rest of the file does not change. A file that
// says it in a way that is not known is an error, and stays.
func Use(flags *pflag.FlagSet, name string) (path string, err error) {
	path = contextFileOf(flags)
	contexts, err := readContexts(path, false)
	if err == nil {
		_, err = contexts.values(name)
	}
	if err != nil {
		return "", err
	}
	return path, rewrite.File("the file of contexts", path, func(text []byte, _ os.FileInfo) ([]byte, error) {
		before, err := parseContexts(path, text)
		if err != nil {
			return nil, err
		}
		changed, err := setCurrent(text, name)
		if err != nil {
			return nil, err
		}
		after, err := parseContexts(path, changed)
		if err != nil || after.Current != name || !reflect.DeepEqual(after.Contexts, before.Contexts) {
			return nil, exit.Usagef("%s: its current context cannot be changed from here; write it by hand: current: %s", path, name)
		}
		return changed, nil
	})
}

// setCurrent changes the line that says which context is the current one, or adds it.
func setCurrent(text []byte, name string) ([]byte, error) {
	quoted, err := yaml.Marshal(name)
	if err != nil {
		return nil, err
	}
	line := append([]byte("current: "), bytes.TrimSpace(quoted)...)
	at := currentLine.FindSubmatchIndex(text)
	if at == nil {
		return slices.Concat(line, []byte("\n"), text), nil
	}
	return slices.Concat(text[:at[0]], line, text[at[2]:]), nil
}

// defaultContextFile returns the path of the file of contexts, "" without a home directory.
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
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return &contextFile{path: path}, nil
	}
	if err != nil {
		return nil, exit.Usagef("the file of contexts: %w", err)
	}
	return parseContexts(path, text)
}

func parseContexts(path string, text []byte) (*contextFile, error) {
	file := &contextFile{path: path}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(file); err != nil && !errors.Is(err, io.EOF) { // an empty file is EOF
		return nil, exit.Usagef("the file of contexts %s: %w", path, err)
	}
	return file, nil
}

func (f *contextFile) values(name string) (values, error) {
	named, known := f.Contexts[name]
	if !known {
		return values{}, exit.Usagef("unknown context %q in %s; it has: %s", name, f.path, f.names())
	}
	if named == nil {
		named = &namedContext{}
	}
	settings := map[string]string{
		"address": strings.Join(named.Address, ","),
		"tls-ca":  f.relative(named.TLSCA), "tls-cert": f.relative(named.TLSCert), "tls-key": f.relative(named.TLSKey),
		"timeout": named.Timeout, "insecure": strconv.FormatBool(named.Insecure),
		"credential-file": f.relative(named.CredentialFile), "oidc-issuer": named.OIDCIssuer, "oidc-client-id": named.OIDCClientID,
		"oidc-client-secret-file": f.relative(named.OIDCClientSecretFile), "oidc-scopes": named.OIDCScopes,
		"oidc-audience": named.OIDCAudience, "oidc-ca": f.relative(named.OIDCCA),
	}
	maps.DeleteFunc(settings, func(_, value string) bool { return value == "" }) // what is left out has its default
	return values{settings, func(setting string) string { return fmt.Sprintf("%s of context %q in %s", setting, name, f.path) }}, nil
}

// relative returns a path as seen from the file's folder.
func (f *contextFile) relative(path string) string {
	if path == "" || path == SystemCA || filepath.IsAbs(path) {
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

// SplitList splits a list at its commas.
func SplitList(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// pathFlags are the settings that are paths of files. In the file of contexts they are absolute.
var pathFlags = []string{"tls-ca", "tls-cert", "tls-key", "credential-file", "oidc-client-secret-file", "oidc-ca"}

// Set changes the settings of a context, by the names of their flags, and creates the context, and its file, if need be; an empty value
// removes a setting. All other settings and all comments stay. The first context becomes the current one.
func Set(flags *pflag.FlagSet, name string, given map[string]string) error {
	if name == "" {
		return exit.Usagef("NAME: must not be empty")
	}
	path := contextFileOf(flags)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return rewrite.File("the file of contexts", path, func(text []byte, _ os.FileInfo) ([]byte, error) {
		before, err := parseContexts(path, text)
		if err != nil {
			return nil, err
		}
		changed, err := changeContext(text, name, given, len(before.Contexts) == 0)
		if err != nil {
			return nil, err
		}
		after, err := parseContexts(path, changed)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(before.Contexts, func(n string, _ *namedContext) bool { return n == name })
		others := maps.Clone(after.Contexts)
		delete(others, name)
		if len(others) != len(before.Contexts) || len(others) > 0 && !reflect.DeepEqual(others, before.Contexts) {
			return nil, exit.Usagef("%s: the context %q cannot be changed from here; edit the file", path, name)
		}
		return changed, nil
	})
}

// changeContext returns the text of a file of contexts with a context changed.
func changeContext(text []byte, name string, given map[string]string, first bool) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.Kind == 0 || file.Content[0].Kind != yaml.MappingNode { // an empty file
		file = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	root := file.Content[0]
	if first {
		setScalar(root, "current", name)
	}
	context := mappingOf(mappingOf(root, "contexts"), name)
	for _, flag := range slices.Sorted(maps.Keys(given)) {
		value := given[flag]
		if slices.Contains(pathFlags, flag) && value != "" && value != SystemCA {
			absolute, err := filepath.Abs(value)
			if err != nil {
				return nil, err
			}
			value = absolute
		}
		setScalar(context, strings.ReplaceAll(flag, "-", "_"), value)
	}
	var changed bytes.Buffer
	encoder := yaml.NewEncoder(&changed)
	encoder.SetIndent(2)
	err := encoder.Encode(&file)
	return changed.Bytes(), err
}

// mappingOf returns the mapping that is the value of a key, which is added if need be.
func mappingOf(mapping *yaml.Node, key string) *yaml.Node {
	value := valueOf(mapping, key)
	if value.Kind != yaml.MappingNode {
		value.Kind, value.Tag, value.Value = yaml.MappingNode, "", ""
	}
	return value
}

// setScalar sets the value of a key. An empty value removes the key.
func setScalar(mapping *yaml.Node, key, text string) {
	if text == "" {
		for i := 0; i < len(mapping.Content); i += 2 {
			if mapping.Content[i].Value == key {
				mapping.Content = slices.Delete(mapping.Content, i, i+2)
				return
			}
		}
		return
	}
	value := valueOf(mapping, key)
	value.Kind, value.Value, value.Content = yaml.ScalarNode, text, nil
	if value.Tag = "!!str"; key == "insecure" {
		value.Tag = "!!bool"
	}
}

// valueOf returns the value of a key, which is added if need be.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	value := &yaml.Node{Kind: yaml.ScalarNode}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
	return value
}
