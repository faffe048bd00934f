package session

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/inbox"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
)

// Attached is a session that a stream attaches to this server.
type Attached struct {
	ID, Owner string
	TTL       time.Duration
	// Resumed reports whether the session existed before it was opened.
	Resumed bool

	m        *Manager
	caller   context.Context // context of its commands: see access.WithCaller
	life     context.Context // caller, until the session is no longer served here
	endLife  context.CancelFunc
	identity string // of its caller
	server   string // the name of this server that the session is attached to
	since    time.Time
	received atomic.Int64  // lease time of the committer when the client last sent something
	room     chan struct{} // has a value for each command that is not answered yet
	data     atomic.Int64  // size of the values and user data of these commands
	wake     chan struct{} // has a value when there are events to send
	less     chan struct{} // has a value when a command was answered
	inbox    *inbox.Inbox  // runs what the committer and the hub report
	follow   func()        // stops following the hub
	// started counts the commands that the committer has. None is added after the end.
	started sync.WaitGroup

	mu        sync.Mutex
	err       error // why it has ended; nil before that
	resources map[string]*resource
	running   int       // number of commands about resources that are not answered yet
	barrier   Command   // UnlockAll or Close that waits for these commands, or runs; or nil
	blocked   []Command // commands that wait for the barrier
	out       []Event   // events that are not sent yet
	reads     int       // number of reads of its claims that run or must be repeated
	reading   bool      // a read of its claims runs: no resource may be forgotten
	doubtful  bool      // another read of its claims is needed
	unknown   bool      // the outcome of a command was unknown, and the claims have not been read since
	known     func()    // called after the claims have been read: see whenKnown; or nil
	asking    bool      // a read of the session's row runs
	holding   int
	waiting   int
	making    int // claims that a command is making and that no answer has reported yet
}

func newAttached(ctx context.Context, m *Manager, s claim.Session, server string) *Attached {
	a := &Attached{
		ID: s.ID, Owner: s.Owner, TTL: s.TTL, m: m, caller: access.Detached(ctx), identity: access.CallerOf(ctx).Name, server: server, since: time.Now(),
		room: make(chan struct{}, m.config.Commands), wake: make(chan struct{}, 1), less: make(chan struct{}, 1),
		resources: make(map[string]*resource),
	}
	a.life, a.endLife = context.WithCancel(a.caller)
	a.inbox = inbox.New(m.config.Unread, func() { a.end(ErrTooSlow) })
	a.Received()
	a.follow = func() {}
	return a
}

// Received notes that the client sent something.
func (a *Attached) Received() { a.received.Store(int64(a.m.queues.LeaseTime())) }

// silence returns how long the client has sent nothing. It counts lease time, which stands still while this server
// cannot commit.
func (a *Attached) silence() time.Duration {
	return a.m.queues.LeaseTime() - time.Duration(a.received.Load())
}

// TimeLeft returns how long the session stays attached if its client sends nothing.
func (a *Attached) TimeLeft() time.Duration { return a.TTL/2 - a.silence() }

// load reads the session and its live claims. From then on it gets their changes, until the caller calls follow.
func (a *Attached) load(ctx context.Context, sequence uint64) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	loaded := make(chan struct{})
	defer close(loaded)
	a.inbox.Put(func() { <-loaded }) // the changes that arrive meanwhile wait behind it
	a.follow = a.m.hub.Follow(a.ID, a.inbox, a)
	row, claims, err := a.read(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		return err
	}
	a.Owner, a.TTL, a.Resumed = row.Owner, row.TTL, row.Version > uint64(row.Created) // its first version is its creation time
	for i := range claims {
		c := &claims[i]
		r := a.resource(c.Resource)
		a.set(r, c)
		s := standing(holdingOf(c.Status), c)
		a.send(Event{Sequence: sequence, Standing: &s})
	}
	a.send(Event{Sequence: sequence, Opened: true, Resumed: a.Resumed})
	return nil
}

// read reads the session and its live claims, both at the same time.
func (a *Attached) read(ctx context.Context) (row claim.Session, claims []claim.Claim, err error) {
	var failed error
	var both sync.WaitGroup
	both.Go(func() { claims, failed = a.m.store.Live(ctx, db.LiveOf{Session: a.ID}, db.Page{}) })
	row, _, err = a.m.store.Session(ctx, a.ID)
	both.Wait()
	return row, claims, cmp.Or(err, failed)
}

func (a *Attached) push(e Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(e)
}

func (a *Attached) send(e Event) {
	if a.err != nil {
		return
	}
	a.out = append(a.out, e)
	periodic.Wake(a.wake)
	if len(a.out) > a.m.config.Unread {
		a.stop(ErrTooSlow)
	}
}

// Next waits for events and returns them. It returns nil after the end of the session here, or of ctx.
func (a *Attached) Next(ctx context.Context) []Event {
	for {
		a.mu.Lock()
		events, ended := a.out, a.err != nil
		a.out = nil
		a.mu.Unlock()
		if len(events) > 0 {
			a.answered(events)
			return events
		}
		if ended {
			return nil
		}
		select {
		case <-a.wake:
		case <-a.life.Done():
		case <-ctx.Done():
			return nil
		}
	}
}

// answered frees the room of the commands that the events answer, and measures how long grants waited to be sent.
func (a *Attached) answered(events []Event) {
	for i := range events {
		if since := events[i].granted; !since.IsZero() {
			a.m.hub.Answers.Delivered(since)
		}
		if events[i].answers {
			<-a.room
		}
	}
}

// end ends the service of the session here. Events that wait are still sent.
func (a *Attached) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(err)
}

func (a *Attached) stop(err error) {
	if a.err != nil {
		return
	}
	a.count(Held, -a.holding)
	a.count(Waiting, -a.waiting)
	a.err = err
	a.endLife()
}

// End ends the service of the session here with a reason. Only the first end counts.
func (a *Attached) End(err error) { a.end(err) }

// Ended is closed when the session is no longer served here. Err then returns the reason.
func (a *Attached) Ended() <-chan struct{} { return a.life.Done() }

// Err returns why the session is no longer served here, nil while it is.
func (a *Attached) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Detach must be called when the stream has ended.
func (a *Attached) Detach() {
	defer a.m.tasks.Done()
	a.end(ErrDetached)
	a.started.Wait()
	a.follow()
	switch err := a.Err(); err {
	case ErrMoved, ErrClosed, claim.ErrSessionEnded: //nolint:errorlint // compared as they were passed to end
		a.m.remove(a)
	default:
		a.m.detachLater(a.ID, a.server, a, a.TTL)
	}
}
