package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
)

func newManCommand() *cobra.Command {
	var folder string
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the man pages into a folder",
		Example: `  locket man --dir /usr/local/share/man/man1
  locket man --dir ./man`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if folder == "" {
				return exit.Usagef("--dir is required: the folder to write the pages to")
			}
			return writeManPages(cmd.Root(), folder)
		},
	}
	cmd.Flags().StringVar(&folder, "dir", "", "the folder, created if it does not exist (required)")
	return cmd
}

// writeManPages writes a page for a command, and for those below it: locket-lock.1.
func writeManPages(cmd *cobra.Command, folder string) error {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, pageOf(cmd)+".1"), []byte(manPage(cmd)), 0o644); err != nil {
		return err
	}
	for _, below := range cmd.Commands() {
		if err := writeManPages(below, folder); err != nil {
			return err
		}
	}
	return nil
}

// pageOf returns the name of a command's page.
func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns a command's page, in the man macros of roff. It has no date, so that the same program always writes the same.
func manPage(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var page strings.Builder
	fmt.Fprintf(&page, ".TH %s 1 \"\" Locket Locket\n", strings.ToUpper(pageOf(cmd)))
	fmt.Fprintf(&page, ".SH NAME\n%s \\- %s\n", roff(pageOf(cmd)), roff(cmd.Short))
	fmt.Fprintf(&page, ".SH SYNOPSIS\n%s\n", roff(cmd.UseLine()))
	page.WriteString(".SH DESCRIPTION\n" + manText(describe(cmd)))
	manFlags(&page, "OPTIONS", ownFlags(cmd))
	if !hasOptions(cmd) {
		manFlags(&page, "CONNECTION", connectFlags(cmd))
	}
	if note := durationNote(cmd); note != "" {
		page.WriteString(".PP\n" + manText(note))
	}
	if cmd.HasExample() {
		page.WriteString(".SH EXAMPLES\n" + manText(cmd.Example))
	}
	manOthers(&page, cmd)
	return page.String()
}

// manText sets a text: paragraphs as they fit, indented lines as they are.
func manText(text string) string {
	var set strings.Builder
	asIs := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t"); indented != asIs && line != "" {
			asIs = indented
			set.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[asIs])
		}
		if line == "" {
			set.WriteString(".PP\n")
		} else {
			set.WriteString(roff(line) + "\n")
		}
	}
	if asIs {
		set.WriteString(".fi\n")
	}
	return set.String()
}

func manFlags(page *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(page, ".SH %s\n", title)
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(flag)
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand + ", " + name
		}
		if !slices.Contains([]string{"", "false", "0", "0s"}, flag.DefValue) {
			usage += " (default " + flag.DefValue + ")"
		}
		fmt.Fprintf(page, ".TP\n%s\n%s\n", roff(strings.TrimSpace(name+" "+placeholder)), roff(usage))
	})
}

// manOthers names the pages of the commands around.
func manOthers(page *strings.Builder, cmd *cobra.Command) {
	var others []string
	if cmd.HasParent() {
		others = append(others, roff(pageOf(cmd.Parent()))+"(1)")
	}
	for _, below := range cmd.Commands() {
		if !below.Hidden && below.Name() != "help" {
			others = append(others, roff(pageOf(below))+"(1)")
		}
	}
	if hasOptions(cmd) {
		others = append(others, roff("locket-options")+"(1)")
	}
	page.WriteString(".SH SEE ALSO\n" + strings.Join(others, ",\n") + "\n")
}

// roff escapes a line so that roff finds no command in it.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
