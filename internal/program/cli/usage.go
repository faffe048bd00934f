package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/printable"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/internal/program/cli/tty"
)

// setUp gives all commands help in sections, their arguments and durations, and usage errors their status.
func setUp(root *cobra.Command) {
	addTemplateFuncs()
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate("{{helpText .}}\n" + usageTemplate)
	root.SetFlagErrorFunc(flagError)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			exampleCompletions(cmd)
			completeInBash(cmd)
		case "help":
			cmd.Example = "  locket help lock"
			cmd.Args = isCommand
		}
	}
	complete(root)
}

// complete sets what all commands have in common, for a command and the commands below it: a duration without a unit is in seconds, the
// usage names the arguments, wrong arguments end with exit.Usage, and a command with others below it shows its help.
func complete(cmd *cobra.Command) {
	settings.TakeDurations(cmd.Flags())
	check := cmd.Args
	switch {
	case check == nil && cmd.HasSubCommands():
		check = unknownCommand
	case check == nil:
		check = takes(argumentNames(cmd)...)
	}
	if cmd.HasSubCommands() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it cobra checks no arguments
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if exit := (*exit.Error)(nil); err == nil || errors.As(err, &exit) {
			return err
		}
		return exit.With(exit.Usage, err)
	}
	for _, below := range cmd.Commands() {
		complete(below)
	}
}

func exampleCompletions(completion *cobra.Command) {
	completion.Example = "  locket completion --help"
	for _, shell := range completion.Commands() {
		shell.Example = map[string]string{
			"bash":       "  locket completion bash > /etc/bash_completion.d/locket",
			"zsh":        `  locket completion zsh > "${fpath[1]}/_locket"`,
			"fish":       "  locket completion fish > ~/.config/fish/completions/locket.fish",
			"powershell": "  locket completion powershell > locket.ps1",
		}[shell.Name()]
	}
}

// isCommand refuses help with an unknown command.
func isCommand(help *cobra.Command, args []string) error {
	if cmd, _, _ := help.Root().Find(args); cmd == help.Root() {
		return unknownCommand(cmd, args)
	}
	return nil
}

// flagError returns the error for a wrong flag, with the flags that may be meant. A flag behind a word that names no command is that command's.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		return exit.With(exit.Usage, unknownCommand(cmd, cmd.Flags().Args()))
	}
	hint := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		hint = didYouMean(suggestFlags(cmd.Flags(), unknown.GetSpecifiedName()), "--")
	}
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		flag := wrong.GetFlag()
		err = fmt.Errorf("--%s %q: %w", flag.Name, wrong.GetValue(), settings.Refusal(flag, errors.Unwrap(wrong)))
	}
	return exit.Usagef("%w%s", err, hint)
}

// withHint returns an error of a command. A usage error names the help that describes the usage.
func withHint(cmd *cobra.Command, err error) error {
	if wrong := (*exit.Error)(nil); !errors.As(err, &wrong) || wrong.Status != exit.Usage || wrong.Ran {
		return err
	}
	if cmd.Name() == "help" {
		cmd = cmd.Root()
	}
	return fmt.Errorf(`%w; see "%s --help"`, err, cmd.CommandPath())
}

func describe(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long + "\n"
	}
	return cmd.Short + ".\n"
}

// mostColumns is the width of help on a wide terminal, and of the texts in a pipe or a file.
const mostColumns = 100

// widthOf returns the width of a command's help, 0 if its lines may have any length.
func widthOf(cmd *cobra.Command) int { return min(tty.Width(cmd.OutOrStdout()), mostColumns) }

// helpText is the description in lines that fit.
func helpText(cmd *cobra.Command) string {
	return printable.Wrapped(describe(cmd), cmp.Or(widthOf(cmd), mostColumns))
}

// flagLines lists flags. On a terminal the lines fit.
func flagLines(cmd *cobra.Command, flags *pflag.FlagSet) string {
	return strings.TrimRight(flags.FlagUsagesWrapped(widthOf(cmd)), "\n")
}

// durationNote says how durations are written, "" for a command that takes none.
func durationNote(cmd *cobra.Command) string {
	note := ""
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if settings.IsDuration(flag) && (!isConnection(flag) || !hasOptions(cmd)) {
			note = "A duration is " + settings.DurationHelp + "."
		}
	})
	return note
}

// connectFlags returns the flags of a command that say where the servers are, ownFlags the others.
func connectFlags(cmd *cobra.Command) *pflag.FlagSet { return flagsOf(cmd, true) }
func ownFlags(cmd *cobra.Command) *pflag.FlagSet     { return flagsOf(cmd, false) }

func flagsOf(cmd *cobra.Command, connection bool) *pflag.FlagSet {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if isConnection(flag) == connection {
			some.AddFlag(flag)
		}
	})
	return some
}

// hasOptions reports whether "locket options" lists the flags of a command's connection.
func hasOptions(cmd *cobra.Command) bool {
	return cmd.Flag("address") != nil && cmd.Name() != "options"
}

// addTemplateFuncs registers, once, the functions that usageTemplate calls.
var addTemplateFuncs = sync.OnceFunc(func() {
	cobra.AddTemplateFuncs(map[string]any{
		"connectFlags": connectFlags, "ownFlags": ownFlags, "hasOptions": hasOptions, "durationNote": durationNote, "helpText": helpText, "flagLines": flagLines,
	})
})

// usageTemplate is cobra's own with the flags in two sections, and the example first.
const usageTemplate = `Usage:{{if and .Runnable .HasParent (not .HasAvailableSubCommands)}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}

{{if .Groups}}Others{{else}}Commands{{end}}:{{range $cmds}}{{if (and (eq .GroupID "") (or .IsAvailableCommand (eq .Name "help")))}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{with ownFlags .}}{{if .HasAvailableFlags}}

Flags:
{{flagLines $ .}}{{end}}{{end}}{{if hasOptions .}}

"locket options" lists the flags that say where the servers are.{{else}}{{with connectFlags .}}{{if .HasAvailableFlags}}

Where the servers are (each flag is also an environment variable: LOCKET_ADDRESS):
{{flagLines $ .}}{{end}}{{end}}{{end}}{{with durationNote .}}

{{.}}{{end}}{{if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" describes a command.{{end}}
`
