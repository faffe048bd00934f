package simulation_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// client is a client with a name. One goroutine uses it.
type client struct {
	*world
	*rand.Rand
	name    string
	server  int
	ids     int
	network network
}

func (w *world) client(kind string, n int) *client {
	name := fmt.Sprint(kind, "-", n)
	c := &client{world: w, Rand: w.rand(name), name: name}
	c.server = c.IntN(len(w.servers))
	return c
}

// repeat calls a function until the clients are to stop.
func (c *client) repeat(do func()) {
	for c.think(); c.ctx.Err() == nil; c.think() {
		do()
	}
}

// think is the pause between two requests.
func (c *client) think() { sleep(context.Background(), time.Duration(20+c.IntN(500))*time.Millisecond) }

// newID returns an id for a claim, an owner or a session.
func (c *client) newID() string {
	c.ids++
	return fmt.Sprint(c.name, "-", c.ids)
}

func (c *client) key() string { return c.keys[c.IntN(len(c.keys))] }

// pick returns the client's present server. Now and then it moves to another one.
func (c *client) pick() *server {
	if c.IntN(5) == 0 {
		c.move()
	}
	return c.servers[c.server]
}

// at returns a connection to the client's present server.
func (c *client) at() models.LocketClient {
	return models.NewLocketClient(c.Over(c.connectionTo(c.pick())))
}

// connectionTo returns a connection to a server.
func (c *client) connectionTo(s *server) *connection {
	return &connection{c.world, c.name, &c.network, s}
}

func (c *client) move() { c.server = (c.server + 1 + c.IntN(len(c.servers)-1)) % len(c.servers) }

// insist repeats a request, at one server after the other, while it is refused temporarily.
func (c *client) insist(refused func() bool) {
	for range 20 {
		if !refused() {
			return
		}
		c.move()
		c.think()
	}
}

func momentary(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

const (
	leaseTTL = 2 * time.Second
	claimTTL = 5 * time.Second
)

// claim makes a claim, waits for it, renews it, and ends it, or leaves it to itself.
func (c *client) claim() {
	ctx := context.Background()
	request := &models.CreateClaimRequest{
		Resource: c.key(), Id: c.newID(), Mode: models.Mode(c.IntN(4) / 3), Ttl: proto.Float64(claimTTL.Seconds()), NoWait: c.IntN(4) == 0,
	}
	if request.Owner = request.GetId(); c.IntN(8) == 0 {
		request.Ttl = proto.Float64(0.5)
	}
	if c.IntN(3) == 0 {
		request.WaitTtl = proto.Float64(1)
	}
	made, err := c.at().CreateClaim(ctx, request)
	if status.Code(err) == codes.Unavailable && c.IntN(2) == 0 { // the same request again
		c.move()
		made, err = c.at().CreateClaim(ctx, request)
	}
	for n := 0; err == nil && made.GetStatus() == models.Status_STATUS_WAITING && n < 6; n++ {
		timeout := durationpb.New(time.Duration(1+c.IntN(1000)) * time.Millisecond)
		if made, err = c.at().AwaitClaim(ctx, &models.AwaitClaimRequest{Id: request.GetId(), Timeout: timeout}); made.GetStatus() == models.Status_STATUS_ACTIVE {
			c.reached.note(handedOn)
		}
	}
	if c.IntN(4) == 0 {
		return // nobody ends it
	}
	if c.think(); c.IntN(3) == 0 {
		_, _ = c.at().UpdateClaim(ctx, &models.UpdateClaimRequest{Id: request.GetId(), Ttl: proto.Float64(claimTTL.Seconds())})
	}
	if c.IntN(3) == 0 {
		_, _ = c.at().GetClaim(ctx, &models.GetClaimRequest{Id: request.GetId()})
	}
	c.insist(func() bool {
		_, err := c.at().EndClaim(ctx, &models.EndClaimRequest{Id: request.GetId()})
		return momentary(err)
	})
}

// lock takes a lock and releases it, or leaves it to itself. It does not renew: the answer has no version, so the check could not
// tell which request it belongs to.
func (c *client) lock() {
	resource := &models.Resource{Key: c.key(), Owner: c.newID(), TypeCode: models.TypeCode_LOCK}
	_, err := c.at().Lock(context.Background(), &models.LockRequest{Resource: resource, TtlInSeconds: int64(claimTTL.Seconds())})
	if err != nil && status.Code(err) != codes.Unavailable || c.IntN(5) == 0 { // or it may be held
		return
	}
	if c.think(); c.IntN(3) == 0 {
		_, _ = c.at().Fetch(context.Background(), &models.FetchRequest{Key: resource.GetKey()})
	}
	c.insist(func() bool {
		_, err := c.at().Release(context.Background(), &models.ReleaseRequest{Resource: resource})
		return momentary(err)
	})
}

// hold is a process that holds a resource by a runner of package lock as long as it trusts that it does.
func (c *client) hold() {
	key, id := c.key(), c.newID()
	request := &models.CreateClaimRequest{Resource: key, Id: id, Owner: id, Ttl: proto.Float64(leaseTTL.Seconds())}
	roams := &roaming{client: c}
	roams.server.Store(int64(c.server))
	runner := lock.NewClaimRunner(roams, request,
		lock.WithReleaseTimeout(10*time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
	signals, ready, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = runner.Run(signals, ready)
	}()
	select {
	case <-ready:
		if lost := c.trusts(key, runner.Held); lost && roams.present().faults.cutsOff() {
			c.reached.note(lostWhileCut)
		}
	case <-c.ctx.Done():
	case <-ended:
		return
	}
	signals <- os.Interrupt
	<-ended
}

// session uses a session, over several streams, at one server after the other.
func (c *client) session() {
	id := harness.SessionID(c.newID())
	open := &models.OpenSession{Id: id, Secret: harness.SessionSecret, Owner: id, Ttl: 2}
	commands := harness.NewCommands(c.keys, c.IntN)
	for n := 0; n < 5; n++ {
		switch c.stream(open, commands) {
		case closes:
			return
		case lapses:
			c.reached.note(sessionLapsed)
			return
		}
		before := c.server
		if c.move(); c.server != before && open.GetResume() {
			c.reached.note(sessionMoved)
		}
		open = proto.Clone(open).(*models.OpenSession)
		open.Resume = true
		c.think()
	}
}

// ending is how a stream of a session ends.
type ending int

const (
	closes ending = iota
	breaks
	lapses
)

// stream is one stream of a session.
func (c *client) stream(open *models.OpenSession, commands *harness.Commands) ending {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opened, err := models.NewLocketClient(c.Over(c.connectionTo(c.servers[c.server]))).Session(ctx)
	if err != nil {
		return breaks
	}
	s := &sessionStream{stream: opened, answers: harness.Answers(opened)}
	if !s.ask(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}) {
		return breaks
	}
	for range 2 + c.IntN(10) {
		if !s.ask(commands.Next()) {
			return breaks
		}
		if c.IntN(6) == 0 {
			c.openInVain(open)
		}
		c.think()
	}
	switch n := c.IntN(6); {
	case n == 0:
		return lapses
	case n < 3 && c.ctx.Err() == nil:
		return breaks
	}
	if s.ask(&models.SessionRequest{Command: &models.SessionRequest_Close{Close: &models.CloseSession{}}}) {
		for range s.answers {
		}
	}
	return closes
}

// openInVain opens a session at another server as well, and gives that up at once. The session may be attached there later.
func (c *client) openInVain(open *models.OpenSession) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	other := c.servers[(c.server+1)%len(c.servers)]
	stream, err := models.NewLocketClient(c.Over(c.connectionTo(other))).Session(ctx)
	if err != nil {
		return
	}
	open = proto.Clone(open).(*models.OpenSession)
	open.Resume = true
	if stream.Send(&models.SessionRequest{Sequence: 1, Command: &models.SessionRequest_Open{Open: open}}) == nil {
		sleep(ctx, time.Duration(c.IntN(50))*time.Millisecond)
		c.reached.note(openedInVain)
	}
}

type sessionStream struct {
	stream   models.Locket_SessionClient
	sequence uint64
	answers  <-chan uint64
}

// ask sends a request and waits for its answer.
func (s *sessionStream) ask(request *models.SessionRequest) bool {
	s.sequence++
	request.Sequence = s.sequence
	if s.stream.Send(request) != nil {
		return false
	}
	select {
	case _, more := <-s.answers:
		return more
	case <-time.After(callTimeout): // real time: none, simulations run in bubbles
		return false
	}
}

// watch watches everything, at one server after the other: from the last cursor on, or anew.
func (c *client) watch(ctx context.Context) {
	request := &models.WatchRequest{}
	for ; ctx.Err() == nil; c.think() {
		part, cancel := context.WithTimeout(ctx, time.Duration(1+c.IntN(6))*time.Second)
		stream, err := models.NewLocketClient(c.Over(c.connectionTo(c.servers[c.server]))).Watch(part, request)
		cursor := ""
		for err == nil {
			var response *models.WatchResponse
			if response, err = stream.Recv(); response.GetCursor() != "" {
				cursor = response.GetCursor()
			}
		}
		cancel()
		if before := c.server; cursor != "" && request.GetCursor() != "" && before != c.server {
			c.reached.note(watchContinued)
		}
		if c.move(); c.IntN(5) == 0 {
			cursor = ""
		} else if cursor == "" {
			cursor = request.GetCursor()
		} else if request.GetCursor() != "" {
			c.reached.note(watchContinued)
		}
		request = &models.WatchRequest{Cursor: cursor}
	}
}

// stay watches everything at one server, again when the stream breaks.
func (c *client) stay(ctx context.Context) {
	for ; ctx.Err() == nil; c.think() {
		stream, err := models.NewLocketClient(c.Over(c.connectionTo(c.servers[c.server]))).Watch(ctx, &models.WatchRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
	}
}
