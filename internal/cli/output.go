package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/exit"
	"github.com/locket-service/locket/internal/cli/printable"
	"github.com/locket-service/locket/internal/cli/tty"
)

// formats are what -o takes. Without it a command prints what people want to see.
var formats = []string{"json", "yaml", "name", "table", "wide", "jsonpath=", "template="}

// view is an answer that can be shown. In JSON and YAML it shows as encoding/json says.
type view interface {
	// names returns what -o name shows, a line each.
	names() []string
	// text returns what people see.
	text(look look) string
}

// liner is a view that shows otherwise than text when no format is asked for.
type liner interface{ line(look look) string }

// look is how text is to look.
type look struct {
	// terminal: people read it at once.
	terminal bool
	color    bool
	// width is that of the widest table, 0 for no bound.
	width int
	// wide: all columns, and nothing is shortened.
	wide bool
	now  time.Time
}

func addOutput(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "", "how to print: `format` is "+formatNames)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Before anything is done: what cannot be printed is not done.
		if _, err := formatOf(cmd); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// printView prints an answer as the command's --output says.
func printView(cmd *cobra.Command, v view) error {
	format, err := formatOf(cmd)
	if err != nil {
		return err
	}
	text, err := render(v, format, lookOf(cmd.OutOrStdout()))
	if err != nil {
		return err
	}
	if _, err = io.WriteString(cmd.OutOrStdout(), text); err != nil {
		return exit.With(exit.Failure, fmt.Errorf("the answer could not be printed: %w", err))
	}
	return nil
}

// showWithError prints an answer that is not all that was asked for, and returns err.
func showWithError(cmd *cobra.Command, v view, err error) error {
	if failed := printView(cmd, v); failed != nil {
		return failed
	}
	return err
}

// render returns how an answer looks in a format.
func render(v view, format format, look look) (string, error) {
	switch format.name {
	case "json":
		return toJSON(v)
	case "yaml":
		return toYAML(v)
	case "name":
		var lines strings.Builder
		for _, name := range v.names() {
			lines.WriteString(printable.Quoted(name) + "\n")
		}
		return lines.String(), nil
	case "wide":
		look.wide, look.width = true, 0
	case "jsonpath":
		return format.find(v)
	case "template":
		return format.fill(v)
	case "":
		if v, ok := v.(liner); ok {
			return v.line(look), nil
		}
	}
	return v.text(look), nil
}

// lookOf returns how text is to look on what it is written to.
func lookOf(out io.Writer) look {
	terminal := tty.Is(out)
	return look{terminal: terminal, color: terminal && wantsColor(), width: tty.Width(out), now: time.Now()}
}

// wantsColor follows no-color.org.
func wantsColor() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// toJSON returns the JSON of an answer, and a newline. Characters that might move a
// terminal's cursor, which stand in strings only, are escaped.
func toJSON(v any) (string, error) {
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
