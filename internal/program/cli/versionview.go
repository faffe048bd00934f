package cli

import (
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/locket-service/locket/internal/program/cli/show"
)

// versionView describes the build of the program.
type versionView struct {
	Version string  `json:"version"`
	Commit  *string `json:"commit"`
	// Date is the commit's, in RFC 3339.
	Date     *string `json:"date"`
	Go       string  `json:"go"`
	Platform string  `json:"platform"`
}

func versionOf() versionView {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionFrom(info)
}

func versionFrom(info *debug.BuildInfo) versionView {
	v := versionView{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
	v.Commit, v.Date = unlessEmpty(commit), unlessEmpty(settings["vcs.time"])
	return v
}

func (v versionView) Names() []string { return []string{v.Version} }

func (v versionView) Text(look show.Look) string {
	var text strings.Builder
	for _, line := range [][2]string{{"version", v.Version}, {"commit", show.NameCell(v.Commit).Text}, {"date", show.NameCell(v.Date).Text}, {"go", v.Go}, {"platform", v.Platform}} {
		text.WriteString(look.Field(line[0], line[1]))
	}
	return text.String()
}

// version is the module's version, or the commit.
func version() string { return versionOf().Version }
