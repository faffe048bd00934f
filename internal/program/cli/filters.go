package cli

import (
	"encoding"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/locket-service/locket/internal/program/cli/exit"
	"github.com/locket-service/locket/internal/program/cli/settings"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/models/jsonview"
)

var (
	modeNames   = jsonview.Mode(0).Names()
	statusNames = jsonview.Status(0).Names()
)

// addFilters adds the filters of a list of claims.
func addFilters(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.String("resource", "", "only this `resource`")
	flags.String("prefix", "", "only resources with this prefix")
	flags.String("owner", "", "only this owner")
	flags.String("mode", "", strings.Join(modeNames, " or "))
	flags.StringSlice("status", nil, "`statuses` among "+strings.Join(statusNames, ", ")+" (default waiting,active)")
	flags.Bool("all", false, "also claims that have ended")
	for _, value := range [][2]string{
		{"active-duration", "active"}, {"waiting-duration", "waiting"}, {"ttl", "left until they expire"},
	} {
		flags.Duration("minimum-"+value[0], 0, "at least this long "+value[1])
		flags.Duration("maximum-"+value[0], 0, "at most this long "+value[1])
	}
	flags.String("minimum-created", "", "only claims made at this `time` or later: 2026-11-21T17:00:00Z, or 24h for 24 hours ago")
	flags.String("maximum-created", "", "only claims made at this `time` or earlier")
	_ = cmd.RegisterFlagCompletionFunc("resource", completeFlag(completeNames))
	_ = cmd.RegisterFlagCompletionFunc("prefix", completeFlag(completeNames))
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(modeNames, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("status", completeList(statusNames))
}

// filtersOf returns the request that the filters make.
func filtersOf(cmd *cobra.Command) (*models.ListClaimsRequest, error) {
	f := filters{cmd: cmd}
	req := &models.ListClaimsRequest{
		Resource:               f.textOf("resource"),
		Prefix:                 f.cmd.Flag("prefix").Value.String(),
		Owner:                  f.textOf("owner"),
		MinimumActiveDuration:  f.secondsOf("minimum-active-duration"),
		MaximumActiveDuration:  f.secondsOf("maximum-active-duration"),
		MinimumWaitingDuration: f.secondsOf("minimum-waiting-duration"),
		MaximumWaitingDuration: f.secondsOf("maximum-waiting-duration"),
		MinimumTtl:             f.secondsOf("minimum-ttl"),
		MaximumTtl:             f.secondsOf("maximum-ttl"),
		MinimumCreated:         f.timeOf("minimum-created"),
		MaximumCreated:         f.timeOf("maximum-created"),
	}
	var mode jsonview.Mode
	if f.choose("mode", &mode) {
		req.Mode = models.Mode(mode).Enum()
	}
	req.Status = f.statuses()
	return req, f.err
}

// filters reads flags. A flag that was not given is nil. It keeps the last error.
type filters struct {
	cmd *cobra.Command
	err error
}

func (f *filters) textOf(name string) *string {
	return given(f.cmd, name, f.cmd.Flag(name).Value.String())
}

func (f *filters) secondsOf(name string) *float64 {
	d, err := f.cmd.Flags().GetDuration(name)
	if err != nil {
		f.err = err
	}
	return given(f.cmd, name, d.Seconds())
}

// choose reads a flag whose values have names, and reports whether it was given.
func (f *filters) choose(name string, into encoding.TextUnmarshaler) bool {
	text := f.textOf(name)
	if text == nil {
		return false
	}
	if into.UnmarshalText([]byte(*text)) != nil {
		f.err = exit.Usagef("--%s %q: must be %s", name, *text, f.cmd.Flag(name).Usage)
	}
	return true
}

// statuses returns the wanted statuses: none for any, by default waiting and active.
func (f *filters) statuses() (statuses []models.Status) {
	names, _ := f.cmd.Flags().GetStringSlice("status")
	all, _ := f.cmd.Flags().GetBool("all")
	switch {
	case all && f.cmd.Flags().Changed("status"):
		f.err = exit.Usagef("--all and --status exclude each other")
	case all:
		return nil
	case !f.cmd.Flags().Changed("status"):
		return live
	case len(names) == 0:
		f.err = exit.Usagef("--status: must be one or more of %s", strings.Join(statusNames, ", "))
	}
	for _, name := range names {
		var status jsonview.Status
		if status.UnmarshalText([]byte(name)) != nil {
			f.err = exit.Usagef("--status %q: must be one or more of %s", name, strings.Join(statusNames, ", "))
		}
		statuses = append(statuses, models.Status(status))
	}
	return statuses
}

func (f *filters) timeOf(name string) *timestamppb.Timestamp {
	text := f.textOf(name)
	if text == nil {
		return nil
	}
	at, err := parseTime(*text, time.Now())
	if err != nil {
		f.err = exit.Usagef("--%s: %w", name, err)
	}
	return timestamppb.New(at)
}

// parseTime understands a time, a day, and how long ago it was.
func parseTime(text string, now time.Time) (time.Time, error) {
	if ago, err := settings.ParseDuration(text); err == nil && strings.Trim(text, "0123456789.") != "" { // 2026 may be meant as a year
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: must be a time like 2026-11-21T17:00:00Z, a day like 2026-11-21, or how long ago, like 24h", text)
}
