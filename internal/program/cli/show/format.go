package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/ohler55/ojg/jp"
	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
)

// formatNames are the formats as the help and errors name them.
const formatNames = "json, yaml, name, table, wide, jsonpath=PATH or template=TEMPLATE"

// Format is a format for -o.
type Format struct {
	// Name is one of formats, without =, or "" for text.
	Name string
	// path is the path of jsonpath (RFC 9535), by package jp, which is maintained and needs no other module.
	// client-go's package needs a dozen, and has a dialect of its own.
	path jp.Expr
	// template is the template of template (package text/template).
	template *template.Template
}

// IsText reports whether people read the format.
func (f Format) IsText() bool { return f.Name == "" || f.Name == "table" || f.Name == "wide" }

// FormatOf returns the format of the command's -o. Its error is the user's.
func FormatOf(cmd *cobra.Command) (Format, error) {
	return ParseFormat(cmd.Flag("output").Value.String())
}

func ParseFormat(text string) (f Format, err error) {
	name, program, given := strings.Cut(text, "=")
	f.Name = name
	switch {
	case text == "":
	case name == "jsonpath" && program != "":
		f.path, err = parsePath(program)
	case name == "template" && program != "":
		f.template, err = template.New("").Option("missingkey=error").Parse(program)
	case given || !slices.Contains(formats, name):
		return f, exit.Usagef("--output %q: must be one of %s", text, formatNames)
	}
	if err != nil {
		return f, exit.Usagef("--output %q: %w", text, err)
	}
	return f, nil
}

// parsePath reads a path. As with kubectl it may stand in braces, and begin without the $.
func parsePath(text string) (jp.Expr, error) {
	if inner, found := strings.CutPrefix(text, "{"); found && strings.HasSuffix(inner, "}") {
		text = strings.TrimSuffix(inner, "}")
	}
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "[") {
		text = "$" + text
	}
	if !strings.HasPrefix(text, "$") {
		return nil, fmt.Errorf("the path must begin with $ or a dot, as in $[*].id or .owner")
	}
	return jp.ParseString(text)
}

// get returns the matches of a path. Package jp panics at some paths, such as slices with a negative step.
func get(path jp.Expr, data any) (found []any, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("--output: the path %s cannot be followed: %v", path, broken)
		}
	}()
	return path.Get(data), nil
}

// find returns the matches of a path in an answer, a line each: texts unchanged, all else in JSON.
func (f Format) find(v View) (string, error) {
	data, err := membersOf(v)
	if err != nil {
		return "", err
	}
	all, err := get(f.path, data)
	if err != nil {
		return "", err
	}
	var lines strings.Builder
	for _, found := range all {
		if text, ok := found.(string); ok {
			lines.WriteString(printable.OneLine(text) + "\n")
			continue
		}
		line, err := json.Marshal(found)
		if err != nil {
			return "", err
		}
		lines.WriteString(printable.Escape(string(line), escapeJSON) + "\n")
	}
	return lines.String(), nil
}

// fill returns the template filled with an answer.
func (f Format) fill(v View) (string, error) {
	data, err := membersOf(v)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if err := f.template.Execute(&text, data); err != nil {
		return "", fmt.Errorf("--output: %w", err)
	}
	return text.String(), nil
}

// membersOf returns an answer as -o json shows it, as maps and lists. Nothing in it moves a terminal's cursor.
func membersOf(v View) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var data any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&data); err != nil {
		return nil, err
	}
	return plainValue(data), nil
}

// plainValue converts JSON numbers to numbers, whole ones exactly, and makes texts printable.
func plainValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		members := make(map[string]any, len(value))
		for name, member := range value {
			members[printable.Text(name)] = plainValue(member)
		}
		return members
	case []any:
		for i, element := range value {
			value[i] = plainValue(element)
		}
	case string:
		return printable.Text(value)
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		if number, err := value.Float64(); err == nil {
			return number
		}
		return value.String()
	}
	return value
}
