package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/db"
	"github.com/locket-service/locket/internal/base/ids"
	"github.com/locket-service/locket/internal/base/metric"
	"github.com/locket-service/locket/internal/base/periodic"
	"github.com/locket-service/locket/internal/base/share"
	"github.com/locket-service/locket/internal/rules/access"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/internal/service/committer"
	"github.com/locket-service/locket/internal/service/watch"
)

// Store is the part of a store that a Manager uses.
type Store interface {
	db.Reader
	db.Sessions
}

// Defaults of Config.
const (
	DefaultSessions = 50_000
	DefaultCommands = 1024
	DefaultUnread   = 16_384
)

// Config has the limits of a Manager. A value of 0 means the default.
type Config struct {
	// Name is this server's name. The server registers as Name, a hyphen and a number. Empty: a random name.
	Name string
	// Sessions is how many sessions may be attached to this server. Identities share them.
	Sessions int
	// Commands is how many commands of a session may be unanswered; an answer counts until it is sent. The stream is
	// not read while there are so many.
	Commands int
	// Unread is how many events may wait to be sent. With more of them the session ends with ErrTooSlow.
	Unread int
	// Due is called with the deadline of each session that was detached. It may be nil.
	Due func(deadline claim.Time)
}

const (
	// readTimeout bounds each read of the store.
	readTimeout = 10 * time.Second
	// retryPause is the pause between two attempts at something that must not be given up.
	retryPause = 100 * time.Millisecond
	// lookInterval is how often the manager checks which of its sessions are still attached to this server.
	lookInterval = 2 * time.Second
	// endTimeout is how long Run waits for the sessions to be detached when it ends.
	endTimeout = 5 * time.Second
	// parallel is how many sessions may read their claims concurrently after a gap.
	parallel = 8
)

// Manager has the sessions that are attached to this server. It is a committer.Sessions, and an ifrit.Runner that must
// start after the committer.
type Manager struct {
	queues *committer.Committer
	store  Store
	hub    *watch.Hub
	config Config

	keys    keys // held while a session is opened or detached
	reading chan struct{}
	quit    chan struct{}  // closed at the end
	tasks   sync.WaitGroup // sessions that are being opened, are attached, or are being detached

	registering chan struct{} // full while a name is registered
	names       int           // number of names so far
	limit       *share.Limit  // of the sessions that are being opened or are attached
	mu          sync.Mutex
	opening     int
	attached    map[string]*Attached
	asked       []heartbeat // heartbeats that are not answered yet
	stopping    bool

	holding, waiting atomic.Int64 // claims of all sessions here
}

// New returns a manager, and registers its metrics. Changes go through the committer, whose beats also keep the
// sessions alive; the hub reports the changes of their claims.
func New(queues *committer.Committer, hub *watch.Hub, store Store, config Config, registerer prometheus.Registerer) *Manager {
	config.Name = cmp.Or(config.Name, ids.NewClaim())
	config.Sessions = cmp.Or(config.Sessions, DefaultSessions)
	config.Commands = cmp.Or(config.Commands, DefaultCommands)
	config.Unread = cmp.Or(config.Unread, DefaultUnread)
	m := &Manager{
		queues: queues, store: store, hub: hub, config: config,
		limit: share.NewLasting(config.Sessions), reading: make(chan struct{}, parallel), registering: make(chan struct{}, 1), quit: make(chan struct{}), attached: make(map[string]*Attached),
	}
	queues.SetSessions(m)
	registerer.MustRegister(
		metric.GaugeFunc("locket_sessions", "Sessions that are attached to this server.", func() float64 { return float64(m.len()) }),
		claimsGauge("held", &m.holding), claimsGauge("waiting", &m.waiting),
	)
	return m
}

func claimsGauge(state string, n *atomic.Int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "locket_session_claims", Help: "Claims of the sessions that are attached to this server.",
		ConstLabels: prometheus.Labels{"state": state},
	}, func() float64 { return float64(n.Load()) })
}

func (m *Manager) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.attached)
}

// Open describes the session that a client opens.
type Open struct {
	ID, Secret, Owner string
	TTL               time.Duration
	// Resume requires that the session exists.
	Resume bool
	// Sequence is the message's number.
	Sequence uint64
}

// Open attaches a session to this server. It returns claim.ErrSessionEnded, claim.ErrSessionSecret, ErrTooMany,
// committer.ErrStopping, ErrDetached if this server has lost its sessions meanwhile, and the errors of db.Store. The
// caller must call Detach on the Attached.
func (m *Manager) Open(ctx context.Context, open Open) (*Attached, error) {
	leave, err := m.enter(access.CallerOf(ctx).Name, open)
	if err != nil {
		return nil, err
	}
	defer leave()
	unlock, err := m.keys.lock(ctx, open.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	secret := sha256.Sum256([]byte(open.Secret))
	session := claim.Session{ID: open.ID, Owner: cmp.Or(open.Owner, open.ID), Secret: secret[:], TTL: open.TTL}
	name, err := m.attach(ctx, session, open.Resume)
	if err != nil {
		return nil, err
	}
	if old := m.find(open.ID); old != nil {
		old.end(ErrMoved)
		m.remove(old)      // so that the session is not left to the old stream if the rest fails
		old.started.Wait() // so that load reads the claims that its last commands make
	}
	a := newAttached(ctx, m, session, name)
	err = a.load(ctx, open.Sequence)
	a.Received() // until then the client could not send anything
	if err == nil && m.add(a) {
		return a, nil
	}
	a.end(ErrDetached)
	a.follow()
	m.detachLater(open.ID, name, nil, open.TTL)
	return nil, cmp.Or(err, ErrDetached)
}

// attach attaches a session to this server under its current name, which it returns. A server without sessions does
// not beat, so the beat before this transaction may find that it was declared gone. Then attach tries again, under a
// new name.
func (m *Manager) attach(ctx context.Context, session claim.Session, resume bool) (name string, err error) {
	name, err = m.attachOnce(ctx, session, resume)
	if err != nil || m.queues.Registered() == name {
		return name, err
	}
	again, err := m.attachOnce(ctx, session, resume)
	if err != nil {
		m.detachLater(session.ID, name, nil, session.TTL)
	}
	return again, err
}

func (m *Manager) attachOnce(ctx context.Context, session claim.Session, resume bool) (name string, err error) {
	if name, err = m.register(ctx); err != nil {
		return "", err
	}
	if err := m.endMoved(ctx, session.ID, name); err != nil {
		return "", err
	}
	// Not cancelled with ctx: the session could still be attached. It is detached if it cannot be used.
	_, err = m.queues.Do(context.WithoutCancel(ctx), claim.Attach{Session: session, Server: name, Resume: resume})
	if errors.Is(err, db.ErrOutcomeUnknown) {
		m.detachLater(session.ID, name, nil, session.TTL)
	}
	return name, err
}

// endMoved ends the service of a session that was attached to another server meanwhile, or under another name, and
// waits for its last commands. Otherwise one of them could make a second claim after the session is attached here
// again.
func (m *Manager) endMoved(ctx context.Context, id, name string) error {
	old := m.find(id)
	if old == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	row, _, err := m.store.Session(ctx, id)
	switch {
	case errors.Is(err, claim.ErrSessionEnded), err == nil && row.Server == name:
		return nil
	case err != nil:
		return err
	}
	old.end(ErrMoved)
	old.started.Wait()
	return nil
}

// enter counts a session that an identity is about to attach, unless it takes the place of its older stream. A session
// that is resumed keeps its claims, so it gets more room. leave must be called afterwards.
func (m *Manager) enter(identity string, open Open) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, here := m.attached[open.ID]
	switch {
	case m.stopping:
		return nil, committer.ErrStopping
	case !here && !m.limit.Begin(identity, open.Resume):
		return nil, ErrTooMany
	}
	m.opening++
	m.tasks.Add(1)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.opening--
		if !here {
			m.limit.End(identity)
		}
		m.tasks.Done()
	}, nil
}

// add adds a session to the attached ones, in place of its older stream. It reports whether this server is still
// registered under the name in the session's row.
func (m *Manager) add(a *Attached) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ok := m.queues.Registered() == a.server && !m.stopping
	if ok {
		m.attached[a.ID] = a
		m.limit.Add(a.identity)
		m.tasks.Add(1) // until Detach
	}
	return ok
}

// find returns a session that is attached here, or nil.
func (m *Manager) find(id string) *Attached {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attached[id]
}

// remove removes a session, unless another stream has taken its place.
func (m *Manager) remove(a *Attached) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attached[a.ID] == a {
		delete(m.attached, a.ID)
		m.limit.End(a.identity)
	}
}

// detachLater detaches a session that is attached to this server under a name, as soon as the database is available.
// Its TTL counts from when its client was last heard. a is the stream that has ended, or nil if there is none; then the
// session is detached only if no stream has it.
func (m *Manager) detachLater(id, name string, a *Attached, ttl time.Duration) {
	heard := m.queues.LeaseTime()
	if a != nil {
		heard = time.Duration(a.received.Load())
	}
	m.tasks.Go(func() {
		for !m.detach(id, name, a, max(0, ttl-(m.queues.LeaseTime()-heard))) {
			select {
			case <-m.quit: // other servers will declare this one gone
				return
			case <-time.After(retryPause):
			}
		}
	})
}

// detach reports whether the session is detached, or need not be.
func (m *Manager) detach(id, name string, a *Attached, left time.Duration) bool {
	unlock, err := m.keys.lock(context.Background(), id)
	if err != nil {
		return false
	}
	defer unlock()
	now := m.find(id)
	if now != a && now != nil && now.server == name {
		return true // another stream has the session
	}
	result, err := m.queues.Do(context.Background(), claim.Detach{ID: id, Server: name, Left: left})
	if err != nil && !errors.Is(err, claim.ErrSessionEnded) {
		return false
	}
	if a != nil {
		m.remove(a)
	}
	if err == nil && m.config.Due != nil {
		m.config.Due(result.Now.Lease.Add(left))
	}
	return true
}

// Stop ends all sessions here with committer.ErrStopping and refuses new ones: another server can take them.
func (m *Manager) Stop() {
	m.mu.Lock()
	m.stopping = true
	m.mu.Unlock()
	m.endAll(committer.ErrStopping)
}

func (m *Manager) endAll(err error) {
	for _, a := range m.all() {
		a.end(err)
	}
}

func (m *Manager) all() []*Attached {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*Attached, 0, len(m.attached))
	for _, a := range m.attached {
		all = append(all, a)
	}
	return all
}

// Run implements ifrit.Runner. When it ends it detaches the sessions, for at most endTimeout. If the database hangs,
// the rest ends with the committer.
func (m *Manager) Run(signals <-chan os.Signal, ready chan<- struct{}) error {
	err := periodic.New(lookInterval, m.look).Run(signals, ready)
	m.Stop()
	detached := make(chan struct{})
	go func() {
		m.tasks.Wait()
		close(detached)
	}()
	select {
	case <-detached:
	case <-time.After(endTimeout):
	}
	close(m.quit)
	return err
}

// look finds the sessions that are no longer attached to this server, because another server has ended or attached
// them. It needs one read, however many there are.
func (m *Manager) look(ctx context.Context) {
	if m.queues.Registered() == "" || m.len() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	begin := time.Now()
	here, err := m.attachedHere(ctx)
	if err != nil {
		return // the next look comes soon
	}
	for _, a := range m.all() {
		if !here[a.ID] && a.since.Before(begin) {
			a.findOut()
		}
	}
}
