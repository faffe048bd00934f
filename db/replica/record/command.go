package record

import "github.com/locket-service/locket/internal/rules/claim"

// commands are the kinds of commands. They are set when the program starts, since one has another in it.
var commands []kind

func init() {
	commands = []kind{
		values(func(c *coder, cmd *claim.Create) {
			c.texts(&cmd.ID, &cmd.Resource, &cmd.Owner, &cmd.Value, &cmd.Session, &cmd.Server)
			c.flags(&cmd.New, &cmd.NoWait, &cmd.AllowDeadlock)
			c.Units(&cmd.Units)
			small(c, &cmd.Type, anyType)
			signed(c, &cmd.TTL, &cmd.WaitTTL)
			c.Data(&cmd.UserData)
		}),
		values(func(c *coder, cmd *claim.Acquire) {
			c.texts(&cmd.ID, &cmd.Resource, &cmd.Owner, &cmd.Value)
			small(c, &cmd.Type, anyType)
			signed(c, &cmd.TTL)
			c.Unsigned(&cmd.Token)
		}),
		values(func(c *coder, cmd *claim.Release) {
			c.texts(&cmd.Resource, &cmd.Owner)
			c.Unsigned(&cmd.Token)
		}),
		values(func(c *coder, cmd *claim.Renew) {
			c.texts(&cmd.ID)
			signed(c, &cmd.TTL)
		}),
		values(func(c *coder, cmd *claim.Activate) {
			c.texts(&cmd.ID)
			optional(c, &cmd.TTL, duration)
			c.texts(&cmd.Session)
		}),
		values(func(c *coder, cmd *claim.SetStatus) {
			c.texts(&cmd.ID, &cmd.Reason)
			small(c, &cmd.Status, claim.Revoked)
		}),
		values(func(c *coder, cmd *claim.End) {
			c.texts(&cmd.ID, &cmd.Reason)
			c.flags(&cmd.Brief)
			c.texts(&cmd.Session)
		}),
		values(func(c *coder, cmd *claim.EndDeadlock) {
			list(c, &cmd.Waits, func(c *coder, w *claim.Wait) { c.texts(&w.Waiter, &w.Blocker) })
		}),
		values(func(c *coder, cmd *claim.KeepWaiting) { c.names(&cmd.IDs) }),
		values(func(c *coder, cmd *claim.Expire) {
			c.names(&cmd.Resources)
			c.names(&cmd.Waiters)
		}),
		values(func(c *coder, cmd *claim.Attach) {
			c.Session(&cmd.Session)
			c.texts(&cmd.Server)
			c.flags(&cmd.Resume)
		}),
		values(func(c *coder, cmd *claim.Detach) {
			c.texts(&cmd.ID, &cmd.Server)
			signed(c, &cmd.Left)
		}),
		values(func(c *coder, cmd *claim.EndSession) {
			c.texts(&cmd.ID, &cmd.Server, &cmd.Reason)
			c.flags(&cmd.OnlyDue, &cmd.Keep)
			small(c, &cmd.Active, claim.Revoked)
			small(c, &cmd.Waiting, claim.Revoked)
		}),
		values(func(c *coder, cmd *claim.IfVersion) {
			c.texts(&cmd.ID)
			c.Unsigned(&cmd.Version)
			if c.depth++; c.depth > 1 {
				c.fail("a condition of a condition")
				return
			}
			oneOf(c, commands, &cmd.Then)
			c.depth--
		}),
	}
}

// anyType is the largest type of a claim that can be stored.
const anyType = ^claim.Type(0)
