package settings

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/rewrite"
)

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
