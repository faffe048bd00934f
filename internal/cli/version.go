package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/locket-service/locket/internal/cli/printable"
)

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Example: `  locket version
  locket version -o json`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return printView(cmd, versionOf()) },
	}
	addOutput(cmd)
	return cmd
}

// versionView is what the program was built from, and for which platform.
type versionView struct {
	Version  string  `json:"version"`
	Commit   *string `json:"commit"`
	Go       string  `json:"go"`
	Platform string  `json:"platform"`
}

func versionOf() versionView {
	v := versionView{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	settings := make(map[string]string)
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	commit := settings["vcs.revision"]
	if commit != "" && settings["vcs.modified"] == "true" {
		commit += " (modified)"
	}
	if commit != "" {
		v.Commit = &commit
	}
	return v
}

func (v versionView) names() []string { return []string{v.Version} }

func (v versionView) text(look look) string {
	commit := printable.None
	if v.Commit != nil {
		commit = *v.Commit
	}
	var text strings.Builder
	for _, line := range [][2]string{{"version", v.Version}, {"commit", commit}, {"go", v.Go}, {"platform", v.Platform}} {
		text.WriteString(look.field(line[0], line[1]))
	}
	return text.String()
}
