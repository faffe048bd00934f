package session

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
)

// Command is one of Lock, Unlock, UnlockAll and Close.
type Command interface {
	sequence() uint64
	// context has the caller and the trace of the command; its end does not end the command. nil: the session's
	// context.
	context() context.Context
}

// Lock acquires a resource, or joins its queue. Repeated, it keeps its place.
type Lock struct {
	Sequence uint64
	Context  context.Context
	Resource string
	Units    claim.Units
	Type     claim.Type
	Value    string
	UserData []byte
	// Try acquires the resource at once or not at all; the answer then names a holder.
	Try bool
	// AllowDeadlock is copied to the claim.
	AllowDeadlock bool
}

// Unlock releases a resource, or leaves its queue.
type Unlock struct {
	Sequence uint64
	Context  context.Context
	Resource string
	// Token, unless it is 0, is the token of the only grant to release.
	Token uint64
}

// UnlockAll releases all that the session holds, and withdraws all that it waits for.
type UnlockAll struct {
	Sequence uint64
	Context  context.Context
}

// Close ends the session and all of its claims.
type Close struct {
	Sequence uint64
	Context  context.Context
}

func (c Lock) sequence() uint64      { return c.Sequence }
func (c Unlock) sequence() uint64    { return c.Sequence }
func (c UnlockAll) sequence() uint64 { return c.Sequence }
func (c Close) sequence() uint64     { return c.Sequence }

func (c Lock) context() context.Context      { return c.Context }
func (c Unlock) context() context.Context    { return c.Context }
func (c UnlockAll) context() context.Context { return c.Context }
func (c Close) context() context.Context     { return c.Context }

// maxData is how many bytes of values and user data the commands under way of a session may have; the last one may exceed it.
const maxData = 4 << 20

// dataOf returns how many bytes a command keeps while it is under way, without its names.
func dataOf(cmd Command) int64 {
	if cmd, ok := cmd.(Lock); ok {
		return int64(len(cmd.Value) + len(cmd.UserData))
	}
	return 0
}

// Room waits for room for one more command or heartbeat, and takes it. It returns false when the session or ctx ends
// first. It is called by one goroutine. While there is no room the client's silence does not count.
func (a *Attached) Room(ctx context.Context) bool {
	select {
	case <-a.life.Done():
		return false
	default:
	}
	if a.data.Load() < maxData {
		select {
		case a.room <- struct{}{}:
			return true
		default:
		}
	}
	for a.data.Load() >= maxData {
		select {
		case <-a.less:
		case <-a.life.Done():
			return false
		case <-ctx.Done():
			return false
		}
	}
	select {
	case a.room <- struct{}{}:
		a.Received()
		return true
	case <-a.life.Done():
	case <-ctx.Done():
	}
	return false
}

// Answered waits until all commands have been answered. It must be called after the last one. It returns false when the
// session or ctx ends first.
func (a *Attached) Answered(ctx context.Context) bool {
	for range cap(a.room) {
		if !a.Room(ctx) {
			return false
		}
	}
	return true
}

// Do starts a command; the caller has taken Room for it. An event answers it. Commands must be started one at a time,
// in order.
func (a *Attached) Do(cmd Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.data.Add(dataOf(cmd))
		a.take(cmd)
	}
}

// dropFirst removes the first command about a resource.
func (a *Attached) dropFirst(r *resource) {
	a.data.Add(-dataOf(r.work.commands[0]))
	r.work.commands[0] = nil // the memory of the queue is kept for longer
	r.work.commands = r.work.commands[1:]
	periodic.Wake(a.less)
}

// Refuse answers a command with an error; the caller has taken Room for it.
func (a *Attached) Refuse(sequence uint64, err error) {
	a.push(Event{Sequence: sequence, Err: err, answers: true})
}

func (a *Attached) take(cmd Command) {
	if a.barrier != nil {
		a.blocked = append(a.blocked, cmd)
		return
	}
	var name string
	switch cmd := cmd.(type) {
	case Lock:
		name = cmd.Resource
	case Unlock:
		name = cmd.Resource
	default:
		a.barrier = cmd
		a.pass()
		return
	}
	r := a.resource(name)
	if r.work == nil {
		r.work = newWork()
	}
	a.running++
	r.work.commands = append(r.work.commands, cmd)
	if len(r.work.commands) == 1 {
		a.start(r)
	}
}

// start starts the first command about a resource.
func (a *Attached) start(r *resource) {
	switch cmd := r.work.commands[0].(type) {
	case Lock:
		a.lock(r, cmd)
	case Unlock:
		a.unlock(r, cmd)
	}
}

// done removes the first command about a resource, which has been answered, and starts the next one.
func (a *Attached) done(r *resource) {
	a.running--
	if kept := a.conclude(r); kept != nil {
		a.learn(r, kept)
	}
	if a.dropFirst(r); len(r.work.commands) > 0 {
		a.start(r)
		return
	}
	r.work = nil
	a.forget(r)
	a.pass()
}

func (a *Attached) lock(r *resource, cmd Lock) {
	switch {
	case r.id != "" && r.units != cmd.Units:
		a.refuse(r, &ModeError{r.units})
	case r.id != "":
		a.submit(cmd, claim.Activate{ID: r.id, Session: a.ID}, func(result committer.Result, err error) { a.repeated(r, cmd, &result.Claim, err) })
	case a.holding+a.waiting+a.making >= claim.MaxSessionClaims:
		a.refuse(r, claim.ErrSessionFull)
	default:
		a.making++
		create := claim.Create{
			ID: ids.NewClaim(), New: true, Resource: cmd.Resource, Owner: a.Owner, Units: cmd.Units, Type: cmd.Type, Value: cmd.Value,
			UserData: cmd.UserData, NoWait: cmd.Try, Session: a.ID, Server: a.server,
			AllowDeadlock: cmd.AllowDeadlock,
		}
		r.work.about, r.work.makes = create.ID, true
		a.submit(cmd, create, func(result committer.Result, err error) { a.locked(r, cmd, result, err) })
	}
}

// locked answers a Lock that makes a claim.
func (a *Attached) locked(r *resource, cmd Lock, result committer.Result, err error) {
	r.work.renewed = err == nil
	var collision *claim.CollisionError
	switch {
	case errors.As(err, &collision):
		a.tried(r, cmd, collision.Holder)
	case err != nil:
		a.refuse(r, err)
	case result.Claim.Status.Final(): // the claim has ended before this server learned the outcome
		a.omit(r, &result.Claim)
		a.start(r)
	default:
		a.tell(r, cmd, &result.Claim)
		a.done(r)
	}
}

// repeated answers a Lock of a resource that the session already holds or waits for.
func (a *Attached) repeated(r *resource, cmd Lock, c *claim.Claim, err error) {
	var ended *claim.TransitionError
	switch {
	case errors.As(err, &ended), errors.Is(err, claim.ErrNotFound):
		a.look(r, func() { a.start(r) })
	case errors.Is(err, claim.ErrContention) && cmd.Try:
		a.tried(r, cmd, nil)
	case err == nil:
		a.tell(r, cmd, c)
		a.done(r)
	case errors.Is(err, claim.ErrContention):
		a.same(r, cmd, nil)
		a.done(r)
	default:
		a.refuse(r, err)
	}
}

// tried answers a Try that was not granted, with a holder if there still is one.
func (a *Attached) tried(r *resource, cmd Lock, holder *claim.Claim) {
	if holder != nil {
		a.same(r, cmd, holder)
		a.done(r)
		return
	}
	a.background(func(ctx context.Context) func() {
		found, err := a.m.store.Holder(ctx, cmd.Resource)
		return func() {
			if err == nil {
				found.Value, found.UserData = "", nil // of up to 128 KiB, which nobody asks for
				a.same(r, cmd, &found)
			} else {
				a.same(r, cmd, nil)
			}
			a.done(r)
		}
	})
}

func (a *Attached) unlock(r *resource, cmd Unlock) {
	if r.id == "" || cmd.Token != 0 && (r.status != claim.Active || r.token != cmd.Token) {
		a.same(r, cmd, nil)
		a.done(r)
		return
	}
	r.work.about = r.id
	a.submit(cmd, claim.End{ID: r.id, Session: a.ID, Brief: true}, func(result committer.Result, err error) {
		switch {
		case errors.Is(err, claim.ErrNotFound): // it ended so long ago that its row was deleted
			a.look(r, func() { a.start(r) })
		case err != nil:
			a.refuse(r, err)
		default:
			a.tell(r, cmd, &result.Claim)
			a.done(r)
		}
	})
}

// same answers that the command changed nothing. holder is a claim that holds the resource, for a Try; or nil.
func (a *Attached) same(r *resource, cmd Command, holder *claim.Claim) {
	now := r.holding()
	s := Standing{Resource: r.name, Previous: now, Current: now, Claim: r.id, Units: r.units, Version: r.version, Renewed: r.work.renewed, Holder: holder}
	if now != None {
		s.Status = r.status
	}
	if now == Held {
		s.Token = r.token
	}
	a.send(Event{Sequence: cmd.sequence(), Standing: &s, answers: true})
}

// tell answers with the claim as the command's transaction left it, unless a later version was already sent.
func (a *Attached) tell(r *resource, cmd Command, c *claim.Claim) {
	if c.Version <= r.version {
		a.same(r, cmd, nil)
		return
	}
	previous := r.holding()
	a.set(r, c)
	s := standing(previous, c)
	s.Renewed = r.work.renewed
	a.send(Event{Sequence: cmd.sequence(), Standing: &s, answers: true})
}

// refuse answers the first command about a resource with an error.
func (a *Attached) refuse(r *resource, err error) {
	a.send(Event{Sequence: r.work.commands[0].sequence(), Err: err, answers: true})
	a.done(r)
}

// pass starts the barrier once no command before it is running.
func (a *Attached) pass() {
	if a.barrier == nil || a.running > 0 {
		return
	}
	cmd := claim.EndSession{ID: a.ID, Server: a.server, Active: claim.Released, Waiting: claim.Withdrawn}
	_, cmd.Keep = a.barrier.(UnlockAll)
	a.submit(a.barrier, cmd, func(_ committer.Result, err error) {
		if err == nil && a.holding+a.waiting > 0 { // another server has ended these claims
			a.unknown = true
			a.reconcile()
		}
		a.whenKnown(func() { a.passed(err) })
	})
}

// passed answers the barrier, after the changes that it made were sent, and starts the commands that waited for it.
func (a *Attached) passed(err error) {
	a.send(Event{Sequence: a.barrier.sequence(), Done: err == nil, Err: err, answers: true})
	if _, isClose := a.barrier.(Close); isClose && err == nil {
		a.stop(ErrClosed)
		return
	}
	a.barrier = nil
	blocked := a.blocked
	a.blocked = nil
	for _, next := range blocked {
		a.take(next)
	}
}

// submit gives a client's command to the committer, and calls then with the outcome unless the session has ended
// here. A command with an unknown outcome is sent again until the outcome is known, so it must be idempotent.
func (a *Attached) submit(asked Command, cmd claim.Command, then func(committer.Result, error)) {
	ctx := asked.context()
	if ctx == nil {
		ctx = a.caller
	}
	(&attempt{a: a, ctx: ctx, cmd: cmd, then: then}).begin()
}

// attempt is a command that the session gives to the committer.
type attempt struct {
	a    *Attached
	ctx  context.Context
	cmd  claim.Command
	then func(committer.Result, error)
	// unknown is set if the outcome of an earlier attempt is unknown.
	unknown bool
}

func (t *attempt) begin() {
	if t.a.err != nil {
		return
	}
	t.a.started.Add(1)
	if err := t.a.m.queues.Submit(t.ctx, t.cmd, t.a.inbox, t.answered); err != nil {
		t.a.started.Done()
		t.answer(committer.Result{}, err)
	}
}

// answered is called with the committer's answer.
func (t *attempt) answered(result committer.Result, err error) {
	defer t.a.started.Done()
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	t.answer(result, err)
}

func (t *attempt) answer(result committer.Result, err error) {
	switch {
	case t.a.err != nil:
	case errors.Is(err, db.ErrOutcomeUnknown), t.unknown && indefinite(err):
		t.a.unknown, t.unknown = true, true
		if create, makes := t.cmd.(claim.Create); makes {
			create.New = false
			t.cmd = create
		}
		time.AfterFunc(retryPause, func() {
			t.a.mu.Lock()
			defer t.a.mu.Unlock()
			t.begin()
		})
	case errors.Is(err, claim.ErrNotAttached), errors.Is(err, claim.ErrSessionEnded):
		t.a.ask(true)
	default:
		if t.unknown { // an earlier attempt may have been committed after its claims were read
			t.a.unknown = true
			t.a.reconcile()
		}
		t.then(result, err)
	}
}

// indefinite reports whether an error leaves the outcome of an earlier attempt unknown.
func indefinite(err error) bool {
	for _, of := range []error{db.ErrUnavailable, db.ErrConflict, db.ErrRowLocked, committer.ErrOverloaded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
