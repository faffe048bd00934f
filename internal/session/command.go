package session

import (
	"context"
	"errors"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/committer"
	"github.com/locket-service/locket/internal/ids"
)

// Command is one of Lock, Unlock, UnlockAll and Close.
type Command interface{ sequence() uint64 }

// Lock holds a resource, or joins its queue. Repeated, it keeps its place.
type Lock struct {
	Sequence uint64
	Resource string
	Mode     claim.Mode
	Type     claim.Type
	Value    string
	UserData []byte
	// Try holds the resource at once, or says who does.
	Try bool
	// AllowDeadlock waits also if that causes a deadlock.
	AllowDeadlock bool
}

// Unlock gives a resource up.
type Unlock struct {
	Sequence uint64
	Resource string
	// Token, unless it is 0, is that of the only hold to give up.
	Token uint64
}

// UnlockAll gives everything up that the session holds and waits for.
type UnlockAll struct{ Sequence uint64 }

// Close ends the session, with all that it holds and waits for.
type Close struct{ Sequence uint64 }

func (c Lock) sequence() uint64      { return c.Sequence }
func (c Unlock) sequence() uint64    { return c.Sequence }
func (c UnlockAll) sequence() uint64 { return c.Sequence }
func (c Close) sequence() uint64     { return c.Sequence }

// Room returns when there is room for one more command, or heartbeat, and takes it. It reports
// whether the session goes on.
func (a *Attached) Room(ctx context.Context) bool {
	select {
	case a.room <- struct{}{}:
		return true
	case <-a.ended:
	case <-ctx.Done():
	}
	return false
}

// Answered returns when all commands have been answered, after the last. It reports whether the
// session goes on.
func (a *Attached) Answered(ctx context.Context) bool {
	for range cap(a.room) {
		if !a.Room(ctx) {
			return false
		}
	}
	return true
}

// Do takes a command, for which there is Room. An event will answer it. Commands are given by one
// goroutine, in their order.
func (a *Attached) Do(cmd Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.take(cmd)
	}
}

// Refuse answers a command, for which there is Room, with an error.
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
		r.work = &work{}
	}
	a.running++
	r.work.commands = append(r.work.commands, cmd)
	if len(r.work.commands) == 1 {
		a.start(r)
	}
}

// start begins the first command about a resource.
func (a *Attached) start(r *resource) {
	switch cmd := r.work.commands[0].(type) {
	case Lock:
		a.lock(r, cmd)
	case Unlock:
		a.unlock(r, cmd)
	}
}

// done ends the first command about a resource, which has been answered, and begins the next.
func (a *Attached) done(r *resource) {
	a.running--
	if kept := a.conclude(r); kept != nil {
		a.learn(r, kept)
	}
	if r.work.commands = r.work.commands[1:]; len(r.work.commands) > 0 {
		a.start(r)
		return
	}
	r.work = nil
	a.forget(r)
	a.pass()
}

func (a *Attached) lock(r *resource, cmd Lock) {
	switch {
	case r.id != "" && r.mode != cmd.Mode:
		a.refuse(r, &ModeError{r.mode})
	case r.id != "":
		a.submit(claim.Activate{ID: r.id}, func(result committer.Result, err error) { a.repeated(r, cmd, &result.Claim, err) })
	case a.holding+a.waiting+a.making >= claim.MaxSessionClaims:
		a.refuse(r, claim.ErrSessionFull)
	default:
		create := claim.Create{
			ID: ids.NewClaim(), Resource: cmd.Resource, Owner: a.Owner, Mode: cmd.Mode, Type: cmd.Type, Value: cmd.Value,
			UserData: cmd.UserData, NoWait: cmd.Try, Session: a.ID, Server: a.server,
			AllowDeadlock: cmd.AllowDeadlock, LookFirst: !cmd.AllowDeadlock && a.deadlocks != nil,
		}
		r.work.about, r.work.makes = create.ID, true
		a.making++
		a.create(r, cmd, create)
	}
}

// create makes the claim of a Lock.
func (a *Attached) create(r *resource, cmd Lock, create claim.Create) {
	a.submit(create, func(result committer.Result, err error) {
		var would *claim.WouldWaitError
		if !errors.As(err, &would) {
			a.locked(r, cmd, result, err)
			return
		}
		a.background(func(ctx context.Context) func() {
			err := a.deadlocks.Look(ctx, would)
			return func() {
				if err != nil {
					a.refuse(r, err)
					return
				}
				create.LookFirst = false
				a.create(r, cmd, create)
			}
		})
	})
}

// locked answers a Lock that makes a claim.
func (a *Attached) locked(r *resource, cmd Lock, result committer.Result, err error) {
	var collision *claim.CollisionError
	switch {
	case errors.As(err, &collision):
		a.tried(r, cmd, collision.Holder)
	case err != nil:
		a.refuse(r, err)
	case result.Claim.Status.Final(): // it ended before its outcome was known here
		a.omit(r, &result.Claim)
		a.start(r)
	case result.Claim.Status == claim.Waiting && !cmd.AllowDeadlock && a.deadlocks != nil:
		a.beside(a.caller, func(ctx context.Context) func() { // to the end: the claim stays when the stream breaks
			err := a.deadlocks.Check(ctx, &result)
			return func() { a.checked(r, cmd, &result.Claim, err) }
		})
	default:
		a.tell(r, cmd, &result.Claim)
		a.done(r)
	}
}

// checked answers a Lock whose claim has been looked at. err is why that was withdrawn, nil if it was not.
func (a *Attached) checked(r *resource, cmd Lock, c *claim.Claim, err error) {
	if err == nil {
		a.tell(r, cmd, c)
		a.done(r)
		return
	}
	a.omit(r, c) // it came and went
	a.refuse(r, err)
}

// repeated answers a Lock of what the session had.
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

// tried answers a try that was not granted, and names the holder.
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
	a.submit(claim.End{ID: r.id, Brief: true}, func(result committer.Result, err error) {
		switch {
		case errors.Is(err, claim.ErrNotFound): // it ended long ago
			a.look(r, func() { a.start(r) })
		case err != nil:
			a.refuse(r, err)
		default:
			a.tell(r, cmd, &result.Claim)
			a.done(r)
		}
	})
}

// same answers that nothing has changed. holder holds the resource, if the command asked for it.
func (a *Attached) same(r *resource, cmd Command, holder *claim.Claim) {
	now := r.holding()
	s := Standing{Resource: r.name, Previous: now, Current: now, Claim: r.id, Mode: r.mode, Version: r.version, Holder: holder}
	if now != None {
		s.Status = r.status
	}
	if now == Held {
		s.Token = r.token
	}
	a.send(Event{Sequence: cmd.sequence(), Standing: &s, answers: true})
}

// tell answers with a claim as the transaction of the command left it, unless more of it was told since.
func (a *Attached) tell(r *resource, cmd Command, c *claim.Claim) {
	if c.Version <= r.version {
		a.same(r, cmd, nil)
		return
	}
	previous := r.holding()
	a.set(r, c)
	s := standing(previous, c)
	a.send(Event{Sequence: cmd.sequence(), Standing: &s, answers: true})
}

// refuse answers the first command about a resource with an error.
func (a *Attached) refuse(r *resource, err error) {
	a.send(Event{Sequence: r.work.commands[0].sequence(), Err: err, answers: true})
	a.done(r)
}

// pass begins the barrier when nothing is under way before it.
func (a *Attached) pass() {
	if a.barrier == nil || a.running > 0 {
		return
	}
	cmd := claim.EndSession{ID: a.ID, Server: a.server, Active: claim.Released, Waiting: claim.Withdrawn}
	_, isClose := a.barrier.(Close)
	cmd.Keep = !isClose
	a.submit(cmd, func(_ committer.Result, err error) {
		if isClose && err == nil {
			a.send(Event{Sequence: a.barrier.sequence(), Done: true, answers: true})
			a.stop(ErrClosed)
			return
		}
		a.whenKnown(func() { a.passed(err) })
	})
}

// passed answers the barrier, after what it has changed was told, and begins what it has blocked.
func (a *Attached) passed(err error) {
	a.send(Event{Sequence: a.barrier.sequence(), Done: err == nil, Err: err, answers: true})
	a.barrier = nil
	blocked := a.blocked
	a.blocked = nil
	for _, next := range blocked {
		a.take(next)
	}
}

// submit has a command carried out, and calls then with the outcome, while the session goes on. A
// command whose outcome is not known is sent again until it is: it may be sent any number of times.
func (a *Attached) submit(cmd claim.Command, then func(committer.Result, error)) {
	a.attempt(cmd, false, then)
}

// attempt is submit; unknown says that the outcome of an earlier attempt is not known.
func (a *Attached) attempt(cmd claim.Command, unknown bool, then func(committer.Result, error)) {
	answer := func(result committer.Result, err error) {
		switch {
		case a.err != nil:
		case errors.Is(err, db.ErrOutcomeUnknown), unknown && indefinite(err):
			a.unknown = true
			time.AfterFunc(retryPause, func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.attempt(cmd, true, then)
			})
		case errors.Is(err, claim.ErrNotAttached), errors.Is(err, claim.ErrSessionEnded):
			a.ask(true)
		default:
			then(result, err)
		}
	}
	if a.err != nil {
		return
	}
	a.begun.Add(1)
	err := a.m.queues.Submit(a.caller, cmd, a.inbox, func(result committer.Result, err error) {
		defer a.begun.Done()
		a.mu.Lock()
		defer a.mu.Unlock()
		answer(result, err)
	})
	if err != nil {
		a.begun.Done()
		answer(committer.Result{}, err)
	}
}

// indefinite reports whether an error says nothing of an earlier attempt.
func indefinite(err error) bool {
	for _, of := range []error{db.ErrUnavailable, db.ErrConflict, db.ErrRowLocked, committer.ErrOverloaded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
