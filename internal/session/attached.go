package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/locket-service/locket/internal/claim"
	"github.com/locket-service/locket/internal/inbox"
)

// Attached is a session while it is attached to this server over one stream.
type Attached struct {
	ID, Owner string
	TTL       time.Duration
	// Resumed says that the session was there before.
	Resumed bool

	m         *Manager
	caller    context.Context // of its commands: see access.WithCaller
	deadlocks Deadlocks
	server    string // the name that it is attached to
	since     time.Time
	received  atomic.Int64  // when something last came from its client, in the committer's lease time
	room      chan struct{} // has a value for each command under way
	wake      chan struct{} // has a value when there is something to send
	ended     chan struct{}
	inbox     *inbox.Inbox // has what the committer and the hub tell the session
	follow    func()       // stops following the hub
	// begun are the commands that the committer has. After the end no more come.
	begun sync.WaitGroup

	mu        sync.Mutex
	err       error // why it has ended
	resources map[string]*resource
	running   int                // commands about resources under way
	barrier   Command            // waits for them, or is under way; or nil
	blocked   []Command          // wait for the barrier
	out       []Event            // not sent yet
	loading   bool               // its claims are being read for the first time
	early     []claim.Transition // came meanwhile
	reads     int                // how many times they are to be read again, or are being read
	reading   bool               // they are being read: no resource is forgotten
	doubtful  bool               // they must be
	unknown   bool               // the outcome of a command was not known, and the claims have not been read since
	known     func()             // waits until they have: see whenKnown; or nil
	asking    bool               // whether the session is still attached here
	holding   int
	waiting   int
	making    int // claims that are not told, and may be there already
}

func newAttached(ctx context.Context, m *Manager, s claim.Session, server string) *Attached {
	a := &Attached{
		ID: s.ID, Owner: s.Owner, TTL: s.TTL, m: m, caller: context.WithoutCancel(ctx), server: server, since: time.Now(),
		room: make(chan struct{}, m.config.Commands), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		resources: make(map[string]*resource), loading: true,
	}
	a.inbox = inbox.New(m.config.Unread, func() { a.end(ErrTooSlow) })
	a.Received()
	a.follow = func() {}
	return a
}

// Received notes that something came from the client.
func (a *Attached) Received() { a.received.Store(int64(a.m.queues.LeaseTime())) }

// silence returns for how long nothing was heard from the client. Time in which this server could hear nothing,
// or keep nothing of it, does not count.
func (a *Attached) silence() time.Duration {
	return a.m.queues.LeaseTime() - time.Duration(a.received.Load())
}

// TimeLeft returns for how long the session goes on if nothing comes from its client.
func (a *Attached) TimeLeft() time.Duration { return a.TTL/2 - a.silence() }

// load reads the session and what it holds and waits for. From then on it hears what changes.
func (a *Attached) load(ctx context.Context, sequence uint64) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	row, _, err := a.m.store.Session(ctx, a.ID)
	if err != nil {
		return err
	}
	a.Owner, a.TTL, a.Resumed = row.Owner, row.TTL, row.Version > uint64(row.Created) // its first version is the time of its making
	a.follow = a.m.hub.Follow(a.ID, a.inbox, a)
	claims, err := a.m.store.SessionClaims(ctx, a.ID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.follow()
		return err
	}
	for i := range claims {
		c := &claims[i]
		a.set(a.resource(c.Resource), c)
		s := standing(holdingOf(c.Status), c)
		a.send(Event{Sequence: sequence, Standing: &s})
	}
	a.send(Event{Sequence: sequence, Opened: true, Resumed: a.Resumed})
	a.loading = false
	for _, t := range a.early {
		a.changed(t)
	}
	a.early = nil
	if a.doubtful {
		a.reconcile()
	}
	return nil
}

// push sends an event.
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
	select {
	case a.wake <- struct{}{}:
	default:
	}
	if len(a.out) > a.m.config.Unread {
		a.stop(ErrTooSlow)
	}
}

// Next returns what is to be sent, once there is something, nil after the end or that of ctx.
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
		case <-a.ended:
		case <-ctx.Done():
			return nil
		}
	}
}

// answered makes room for as many commands as events answer, and measures for how long grants were not told.
func (a *Attached) answered(events []Event) {
	for i := range events {
		if since := events[i].granted; !since.IsZero() {
			a.m.hub.Answers.Told(since)
		}
		if events[i].answers {
			<-a.room
		}
	}
}

// end ends the session's stay here: what is to be sent still is.
func (a *Attached) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop(err)
}

func (a *Attached) stop(err error) {
	if a.err != nil {
		return
	}
	a.err = err
	close(a.ended)
	a.count(Held, -a.holding)
	a.count(Waiting, -a.waiting)
}

// End ends the session's stay here, if it has not ended yet.
func (a *Attached) End(err error) { a.end(err) }

// Ended is closed when the session is no longer to be served here. Err then says why.
func (a *Attached) Ended() <-chan struct{} { return a.ended }

// Err returns why the session is no longer served here, nil while it is.
func (a *Attached) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Detach is to be called when the stream is over.
func (a *Attached) Detach() {
	defer a.m.tasks.Done()
	a.end(ErrDetached)
	a.begun.Wait()
	a.follow()
	switch err := a.Err(); err {
	case ErrMoved, ErrClosed, claim.ErrSessionEnded: //nolint:errorlint // as they were given to end
		a.m.remove(a)
	default:
		a.m.detachLater(a.ID, a.server, a, a.TTL)
	}
}
