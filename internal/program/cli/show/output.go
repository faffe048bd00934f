// Package show prints the answers of commands: as tables for people, which fit a terminal and go whole into a pipe, and in the formats
// of --output for scripts.
package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/tty"
)

// formats are the values of -o. Without it a command prints text.
var formats = []string{"json", "yaml", "name", "table", "wide", "jsonpath=", "template="}

// View is an answer that can be shown. In JSON and YAML it shows as encoding/json says.
type View interface {
	// Names returns the output of -o name, a line each.
	Names() []string
	// Text returns the output without -o.
	Text(look Look) string
}

// liner is a view that shows otherwise than Text when no format is asked for.
type liner interface{ Line(look Look) string }

// Look is how text is to look.
type Look struct {
	// Terminal: people read it at once.
	Terminal bool
	Color    bool
	// Width is the width of the widest table, 0 for no bound.
	Width int
	// Wide: all columns, and nothing is shortened.
	Wide bool
	Now  time.Time
}

// AddOutput adds the flag --output to a command.
func AddOutput(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "", "how to print: `format` is "+formatNames)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Print prints an answer as the command's --output says.
func Print(cmd *cobra.Command, v View) error {
	format, err := FormatOf(cmd)
	if err != nil {
		return err
	}
	text, err := Render(v, format, LookOf(cmd.OutOrStdout()))
	if err != nil {
		return err
	}
	if _, err = io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return exit.With(exit.Failure, fmt.Errorf("the answer could not be printed: %w", err))
	}
	return nil
}

// Render returns how an answer looks in a format.
func Render(v View, format Format, look Look) (string, error) {
	switch format.Name {
	case "json":
		return JSON(v)
	case "yaml":
		return YAML(v)
	case "name":
		var lines strings.Builder
		for _, name := range v.Names() {
			lines.WriteString(printable.Quoted(name) + "\n")
		}
		return lines.String(), nil
	case "jsonpath":
		return format.find(v)
	case "template":
		return format.fill(v)
	case "":
		if v, ok := v.(liner); ok {
			return v.Line(look), nil
		}
	}
	return v.Text(look.For(format)), nil
}

// For returns the look of a text in a format.
func (l Look) For(format Format) Look {
	if format.Name == "wide" {
		l.Wide, l.Width = true, 0
	}
	return l
}

// LookOf returns how to print text to out.
func LookOf(out io.Writer) Look {
	terminal := tty.Is(out)
	return Look{Terminal: terminal, Color: terminal && WantsColor(), Width: tty.Width(out), Now: time.Now()}
}

// WantsColor follows no-color.org.
func WantsColor() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// JSON returns the JSON of an answer, and a newline. Characters that might move a
// terminal's cursor, which stand in strings only, are escaped.
func JSON(v any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return "", err
	}
	return printable.Escape(text.String(), escapeJSON), nil
}

func escapeJSON(r rune) string {
	if r > 0xFFFF { // as a pair of surrogates
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// NamesOf returns the names of the elements of a list.
func NamesOf[E any](list []E, name func(E) string) []string {
	names := make([]string, len(list))
	for i, element := range list {
		names[i] = name(element)
	}
	return names
}
