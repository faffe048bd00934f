package committer

import (
	"context"
	"time"
)

// Voucher is who relies on the beats of this server: its sessions, for which it vouches with
// them. Its methods are called on the goroutine that commits, so they must be quick.
type Voucher interface {
	// Vouches reports whether there are sessions: then beats go on, lease or not.
	Vouches() bool
	// Beaten is called after each beat, with when it began. lost says that this server no longer
	// vouches for anybody: another server has declared it gone (db.ErrVouchLost).
	Beaten(began time.Time, lost bool)
}

// SetVoucher is to be called before Run.
func (c *Committer) SetVoucher(v Voucher) { c.voucher = v }

func (c *Committer) vouches() bool { return c.voucher != nil && c.voucher.Vouches() }

func (c *Committer) beaten(began time.Time, lost bool) {
	if c.voucher != nil {
		c.voucher.Beaten(began, lost)
	}
}

// Vouch has the beats of this server vouch for sessions under a name from now on: see db.Pulse.
func (c *Committer) Vouch(ctx context.Context, name string) error {
	c.pulse.Lock()
	defer c.pulse.Unlock()
	return c.store.Vouch(ctx, name)
}
