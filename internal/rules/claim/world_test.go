package claim_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/locket-service/locket/internal/rules/claim"
)

// chooser makes choices: rapid at random, the fuzzer by its bytes.
type chooser interface {
	// choose returns a number from 0 to n-1.
	choose(n int, what string) int
}

// drawn chooses with rapid.
type drawn struct{ t *rapid.T }

func (d drawn) choose(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

// tape chooses by bytes, and always the first when they have run out.
type tape struct{ bytes []byte }

func (t *tape) choose(n int, _ string) int {
	if len(t.bytes) == 0 {
		return 0
	}
	b := t.bytes[0]
	t.bytes = t.bytes[1:]
	return int(b) % n
}

func oneOf[T any](c chooser, what string, from []T) T { return from[c.choose(len(from), what)] }

// world makes up commands and lets time pass. It looks at the model to make up such as
// matter.
type world struct {
	chooser
	model *model
	now   claim.Instant
	ids   int
}

func newWorld(c chooser) *world {
	return &world{chooser: c, model: &model{sessions: sessions{}}, now: claim.Instant{Wall: start, Lease: start}}
}

// ticks are steps of the two clocks: mostly forward; the lease clock stands still without a server, and both step back
// when the database's clock is set.
var ticks = []struct{ wall, lease time.Duration }{
	{0, 0},
	{time.Microsecond, time.Microsecond},
	{time.Second, time.Second},
	{3 * time.Second, 3 * time.Second},
	{20 * time.Second, 20 * time.Second},
	{20 * time.Second, 0},
	{-5 * time.Second, -5 * time.Second},
}

func (w *world) tick() {
	by := oneOf(w, "tick", ticks)
	w.now.Wall = w.now.Wall.Add(by.wall)
	w.now.Lease = w.now.Lease.Add(by.lease)
}

// makers make up one kind of command each. Creating is the most frequent, or lines would
// be short.
var makers = map[string]func(*world) claim.Command{
	"create":       (*world).create,
	"create more":  (*world).create,
	"create again": (*world).recreate,
	"try":          (*world).try,
	"try again":    func(w *world) claim.Command { return w.tryAs(w.anyID()) },
	"acquire":      (*world).acquire,
	"reacquire":    (*world).reacquire,
	"release":      (*world).release,
	"renew":        (*world).renew,
	"activate":     (*world).activate,
	"end":          (*world).end,
	"end holder":   (*world).endHolder,
	"give up":      (*world).giveUp,
	"expire": func(w *world) claim.Command {
		return claim.Expire{Resources: []string{"printer"}, Waiters: w.someIDs()}
	},
	"keep":             func(w *world) claim.Command { return claim.KeepWaiting{IDs: w.someIDs()} },
	"attach":           (*world).attach,
	"detach":           (*world).detach,
	"end session":      (*world).endSession,
	"create for":       (*world).createFor,
	"create more for":  (*world).createFor,
	"create again for": (*world).recreateFor,
}

var makerNames = []string{
	"create", "create more", "create again", "acquire", "release",
	"renew", "activate", "end", "end holder", "expire", "give up", "reacquire", "try", "try again",
	"keep", "attach", "detach", "end session", "create for", "create more for", "create again for",
}

func (w *world) command() claim.Command { return makers[oneOf(w, "command", makerNames)](w) }

func (w *world) newID() string {
	w.ids++
	return fmt.Sprint("claim ", w.ids)
}

// anyID is one of a claim there is, or of none.
func (w *world) anyID() string {
	i := w.choose(len(w.model.claims)+1, "which claim")
	if i == 0 {
		return "nobody"
	}
	return w.model.claims[len(w.model.claims)-i].ID
}

func (w *world) someIDs() []string { return []string{w.anyID(), w.anyID(), w.anyID()} }

func (w *world) owner() string { return oneOf(w, "owner", []string{"ann", "ben", ""}) }

func (w *world) ttl() time.Duration {
	return oneOf(w, "ttl", []time.Duration{
		2 * time.Second, 10 * time.Second, time.Hour, 0, 100 * 365 * 24 * time.Hour,
	})
}

func (w *world) create() claim.Command { return w.createAs(w.newID()) }

func (w *world) createAs(id string) claim.Create {
	return claim.Create{
		ID: id, Resource: "printer", Owner: w.owner(), TTL: w.ttl(),
		Units:   oneOf(w, "units", []claim.Units{claim.Exclusive, claim.Shared, {Take: 1, Of: 3}, {Take: 2, Of: 3}}),
		WaitTTL: oneOf(w, "wait ttl", []time.Duration{0, 2 * time.Second, 30 * time.Second}),
	}
}

// recreate repeats a request, or uses its id for another.
func (w *world) recreate() claim.Command { return w.createAs(w.anyID()) }

// try makes a claim that does not wait.
func (w *world) try() claim.Command { return w.tryAs(w.newID()) }

func (w *world) tryAs(id string) claim.Command {
	cmd := w.createAs(id)
	cmd.NoWait = true
	return cmd
}

func (w *world) acquire() claim.Command {
	return claim.Acquire{
		ID: w.newID(), Resource: "printer", Owner: w.owner(), TTL: w.ttl(),
		Type: claim.Lock, Value: oneOf(w, "value", []string{"", "new"}),
	}
}

// reacquire renews a grant, or what is over, or what is yet to come; mostly as its owner.
func (w *world) reacquire() claim.Command {
	e := w.model.find(w.anyID())
	cmd := w.acquire().(claim.Acquire)
	if e == nil {
		cmd.Token = 1
		return cmd
	}
	cmd.Token = max(1, e.Token)
	if w.choose(4, "by another") != 1 {
		cmd.Owner = e.Owner
	}
	return cmd
}

func (w *world) release() claim.Command {
	cmd := claim.Release{Resource: "printer", Owner: w.owner()}
	if e := w.model.find(w.anyID()); e != nil {
		cmd.Token = e.Token
	}
	return cmd
}

func (w *world) renew() claim.Command { return claim.Renew{ID: w.anyID(), TTL: w.ttl()} }

func (w *world) activate() claim.Command {
	cmd := claim.Activate{ID: w.anyID()}
	if w.choose(2, "with a ttl") == 1 {
		ttl := w.ttl()
		cmd.TTL = &ttl
	}
	return cmd
}

// statuses are all there are, and two that are none.
var statuses = []claim.Status{
	claim.Released, claim.Withdrawn, claim.Aborted, claim.Revoked,
	claim.Expired, claim.Active, claim.Waiting, 0, garbage,
}

func (w *world) end() claim.Command {
	return claim.SetStatus{ID: w.anyID(), Status: oneOf(w, "status", statuses), Reason: "tired"}
}

func (w *world) giveUp() claim.Command { return claim.End{ID: w.anyID(), Reason: "bored"} }

func (w *world) endHolder() claim.Command {
	if h := w.model.holder(); h != nil {
		return claim.SetStatus{ID: h.ID, Status: claim.Released}
	}
	return w.end()
}
