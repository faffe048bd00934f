package backup

import (
	"context"

	"github.com/locket-service/locket/internal/rules/claim"
)

// Until returns a sink that refuses more when ctx has ended.
func Until(ctx context.Context, to Sink) Sink {
	ended := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	s := &until{to, ended}
	if inspector, is := to.(Inspector); is {
		return &inspected{s, inspector}
	}
	return s
}

type until struct {
	Sink
	ended func() error
}

// Claim implements Sink.
func (u *until) Claim(c *claim.Claim) error {
	if err := u.ended(); err != nil {
		return err
	}
	return u.Sink.Claim(c)
}

func (u *until) Row(r Row) error {
	if err := u.ended(); err != nil {
		return err
	}
	return u.Sink.Row(r)
}

func (u *until) Ended(c *claim.Claim) error {
	if err := u.ended(); err != nil {
		return err
	}
	return u.Sink.Ended(c)
}

// inspected is an until whose sink is an Inspector.
type inspected struct {
	*until
	inspector Inspector
}

func (i *inspected) Problem(text string) { i.inspector.Problem(text) }
