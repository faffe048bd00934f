package committer

import (
	"context"
	"errors"

	"github.com/locket-service/locket/db"
)

// Isolate has do carry out a command about some names. If that fails because of a name, do is called for each half of the
// names, and so on, until the name at fault is alone: fault is called for it, and the others are not affected. Isolate returns
// the error of a database or a committer that takes no commands, or of a do after the end of ctx.
func Isolate(ctx context.Context, names []string, do func(names []string) error, fault func(name string, err error)) error {
	switch err := do(names); {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, db.ErrUnavailable), errors.Is(err, db.ErrOutcomeUnknown), errors.Is(err, ErrStopping), errors.Is(err, ErrOverloaded):
		return err
	case len(names) == 1:
		fault(names[0], err)
		return nil
	}
	half := len(names) / 2
	if err := Isolate(ctx, names[:half], do, fault); err != nil {
		return err
	}
	return Isolate(ctx, names[half:], do, fault)
}
