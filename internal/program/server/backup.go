package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/db/mysql"
	"github.com/locket-service/locket/db/replica"
	"github.com/locket-service/locket/internal/base/follow"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Checked is the result of a check.
type Checked = *backup.Checker

// dumper returns a function that dumps a consistent snapshot of the database of a configuration into a sink. It changes
// nothing, and may run while servers use the database: data in a folder is read there, without a server.
func dumper(ctx context.Context, c Config, log *slog.Logger) (func(backup.Sink) error, error) {
	engine, source, _ := strings.Cut(c.database(), ":")
	if engine == engineEmbedded {
		return func(to backup.Sink) error { return replica.Dump(source, to) }, nil
	}
	secrets, err := c.secrets(follow.NewSet(log))
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	return func(to backup.Sink) error { return mysql.Dump(ctx, source, to, secrets) }, nil
}

// ValidateDatabase returns all errors in the settings of the database, each with the name of its flag.
func (c Config) ValidateDatabase() error {
	var k check
	c.checkDatabase(&k)
	return errors.Join(k...)
}

// DatabaseName returns where a server keeps its data, without secrets.
func (c Config) DatabaseName() string { return engineOf(c.database()) }

// Backup writes a consistent snapshot of the database of a configuration into a file, even while servers use the
// database. A snapshot that could not be restored does not replace an older backup, and is an error.
func Backup(ctx context.Context, c Config, file string) (checked Checked, err error) {
	dump, err := dumper(ctx, c, quiet)
	if err != nil {
		return nil, err
	}
	err = backup.Write(file, until(ctx, dump), func(written string) error {
		checked, err = CheckBackup(ctx, written)
		if err == nil && checked.Found > 0 {
			err = fmt.Errorf("%d things in the database do not agree, as `locket check` says: what was written could not be restored, and is removed", checked.Found)
		}
		return err
	})
	return checked, err
}

// Check reads a consistent snapshot of the database of a configuration, and reports inconsistencies.
func Check(ctx context.Context, c Config) (Checked, error) {
	dump, err := dumper(ctx, c, quiet)
	if err != nil {
		return nil, err
	}
	return checked(until(ctx, dump))
}

// CheckBackup is Check for a backup.
func CheckBackup(ctx context.Context, file string) (Checked, error) {
	return checked(until(ctx, func(to backup.Sink) error { return backup.Read(file, to) }))
}

func checked(dump func(backup.Sink) error) (Checked, error) {
	k := backup.NewChecker()
	if err := dump(k); err != nil {
		return nil, err
	}
	return k, nil
}

// Restore checks a backup, fills the empty database of a configuration from it, and returns for how long nothing is
// granted after that.
func Restore(ctx context.Context, c Config, file string, o RestoreOptions) (quarantine time.Duration, err error) {
	from, err := restoring(ctx, file, o, &quarantine)
	if err != nil {
		return 0, err
	}
	engine, source, _ := strings.Cut(c.database(), ":")
	switch engine {
	case engineEmbedded:
		err = replica.Fill(source, from)
	case engineMySQL:
		var secrets mysql.Option
		if secrets, err = c.secrets(follow.NewSet(quiet)); err == nil {
			err = mysql.Fill(ctx, source, from, secrets)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.storeFlag(), err)
	}
	return quarantine, nil
}

// restoring checks that a backup can be restored. It returns a function that gives a sink the restored contents, and sets quarantine to
// how long nothing is granted.
func restoring(ctx context.Context, file string, o RestoreOptions, quarantine *time.Duration) (from func(backup.Sink) error, err error) {
	checked, err := CheckBackup(ctx, file)
	if err != nil {
		return nil, err
	}
	if checked.Found > 0 {
		return nil, fmt.Errorf("%s: %d things in it do not agree, as `locket check %s` says; restore another backup", file, checked.Found, file)
	}
	o.Now = claim.Time(time.Now().UnixMicro())
	from = until(ctx, func(to backup.Sink) error {
		return backup.Read(file, backup.Restored(&ending{to, quarantine}, o))
	})
	return from, from(backup.NewChecker()) // for instance a quarantine that would be too long
}

// RestoreOptions are the options of Restore, which sets Now itself.
type RestoreOptions = backup.Options

// ending records the length of the quarantine.
type ending struct {
	backup.Sink
	quarantine *time.Duration
}

// End implements backup.Sink.
func (e *ending) End(h backup.Head) error {
	*e.quarantine = max(0, h.Quarantine.Sub(h.Lease))
	return e.Sink.End(h)
}

// until makes a dump end with an error when ctx ends.
func until(ctx context.Context, dump func(backup.Sink) error) func(backup.Sink) error {
	return func(to backup.Sink) error { return dump(backup.Until(ctx, to)) }
}

var quiet = slog.New(slog.DiscardHandler)
