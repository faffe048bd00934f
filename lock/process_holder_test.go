package lock_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"github.com/tedsuo/ifrit/sigmon"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// envMember names the environment variable that makes this test binary a member: a program that acquires a lock, works while it
// holds it, and prints a line for each event.
const envMember = "LOCKET_TEST_MEMBER"

// beatInterval is how often a member prints that it is within its trust window.
const beatInterval = 20 * time.Millisecond

// memberPlan is the configuration of a member, as JSON in its environment.
type memberPlan struct {
	Key, Owner string
	Addresses  []string
	// Ways, if there are any, replace the addresses: the first connection goes to the first of them, and so on. All
	// connections after those go to the last one.
	Ways       []string
	TTL, Retry time.Duration
	// Delay is by how much answers to the runner are delayed.
	Delay time.Duration
	// Session is set for a runner that holds by the session of a client.
	Session bool
	// Stall is for how long the callback Unverifiable blocks.
	Stall time.Duration
}

// memberLine is a line that a member prints: an event between two readings of the clock that all processes share.
type memberLine struct {
	kind          string
	before, after time.Duration
	token         uint64
	text          string
}

// The kinds of lines.
const (
	memberBeat         = "beat"    // it was within its trust window
	memberRenewed      = "renewed" // a call of Lock, and its answer
	memberFailed       = "failed"  // a call of Lock, and its error
	memberAcquired     = "acquired"
	memberUnverifiable = "unverifiable"
	memberVerified     = "verified"
	memberLost         = "lost"
	memberEnded        = "ended" // its group ended
	memberLeaked       = "leaked"
	memberOpened       = "opened" // a stream, to open or resume its session
)

// note prints a line with one write, so that no line is cut.
func (l memberLine) note() {
	text := strings.ReplaceAll(l.text, "\n", " ")
	fmt.Fprintf(os.Stdout, "%s %d %d %d %s\n", l.kind, l.before, l.after, l.token, text)
}

// noteNow prints a line for an event at this moment.
func noteNow(kind string, token uint64, err error) {
	now := sinceBoot()
	l := memberLine{kind: kind, before: now, after: now, token: token}
	if err != nil {
		l.text = err.Error()
	}
	l.note()
}

func parseMemberLine(text string) (l memberLine, err error) {
	parts := append(strings.SplitN(text, " ", 5), "", "", "", "", "")
	l.kind, l.text = parts[0], parts[4]
	_, err = fmt.Sscan(strings.Join(parts[1:4], " "), (*int64)(&l.before), (*int64)(&l.after), &l.token)
	return l, err
}

// beMember is the main function of a member. It returns the exit code.
func beMember(text string) int {
	var plan memberPlan
	orPanic(json.Unmarshal([]byte(text), &plan))
	runner, closing := plan.runner(lock.WithCallbacks(lock.Callbacks{
		Acquired: func(token uint64) { noteNow(memberAcquired, token, nil) },
		Unverifiable: func(err error) {
			noteNow(memberUnverifiable, 0, err)
			time.Sleep(plan.Stall) // real time: the member must be busy
		},
		Verified: func() { noteNow(memberVerified, 0, nil) },
		Lost:     func(err error) { noteNow(memberLost, 0, err) },
	}))
	process := ifrit.Invoke(sigmon.New(grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "lock", Runner: runner},
		{Name: "worker", Runner: working(runner)},
	})))
	failure := <-process.Wait()
	noteNow(memberEnded, 0, failure)
	closing()
	leaked := goleak.Find()
	for range 10 { // each call looks for half a second, which may be too short on a busy machine
		if leaked == nil {
			break
		}
		leaked = goleak.Find()
	}
	if leaked != nil {
		noteNow(memberLeaked, 0, leaked)
	}
	if failure != nil {
		return 1
	}
	return 0
}

// runner returns the member's runner, and a function that closes its client.
func (p memberPlan) runner(options ...lock.Option) (runner *lock.Runner, closing func()) {
	dialer := grpc.WithContextDialer(p.dialer())
	if !p.Session {
		conn, err := lock.Dial(p.Addresses, conn.WithDialOptions(dialer))
		orPanic(err)
		client := &noting{LocketClient: models.NewLocketClient(conn), delay: p.Delay}
		return lock.NewLockRunner(client, resource(p.Key, p.Owner), p.TTL, p.Retry, options...), func() { orPanic(conn.Close()) }
	}
	client, err := lock.NewClient(p.Addresses, lock.WithTTL(p.TTL), lock.WithDial(conn.WithDialOptions(dialer, grpc.WithStreamInterceptor(p.interceptStream))))
	orPanic(err)
	all := []lock.SessionRunnerOption{lock.WithOwner(cmp.Or(p.Owner, client.Owner()))}
	for _, option := range options {
		all = append(all, option)
	}
	return lock.NewSessionRunner(client, p.Key, all...), func() { _ = client.Close() } // it fails if no server is there
}

func (p memberPlan) interceptStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	noteNow(memberOpened, 0, nil)
	stream, err := streamer(ctx, desc, cc, method, opts...)
	return &notingStream{ClientStream: stream, delay: p.Delay}, err
}

// notingStream prints the answers that prolong the trust window of a session, and that it waits.
type notingStream struct {
	grpc.ClientStream
	delay time.Duration
	sent  sync.Map     // when requests were sent, by their sequence
	last  atomic.Int64 // when one was sent last
}

// SendMsg implements grpc.ClientStream.
func (s *notingStream) SendMsg(m any) error {
	request, _ := m.(*models.SessionRequest)
	now := sinceBoot()
	s.last.Store(int64(now))
	for _, r := range append(request.GetMore(), request) {
		s.sent.Store(r.GetSequence(), now)
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *notingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	now := sinceBoot()
	switch {
	case status.Code(err) == codes.Canceled: // by the session itself
		return err
	case err != nil:
		memberLine{kind: memberFailed, before: time.Duration(s.last.Load()), after: now, text: err.Error()}.note()
		return err
	}
	response, _ := m.(*models.SessionResponse)
	for _, r := range append(response.GetMore(), response) {
		if r.GetStatus().GetCurrent() == models.Holding_HOLDING_WAITING {
			memberLine{kind: memberFailed, before: now, after: now, text: "it waits"}.note()
		}
		if r.GetHeartbeat() != nil || r.GetOpened() != nil || r.GetStatus().GetRenewed() {
			sent, _ := s.sent.Load(r.GetSequence())
			memberLine{kind: memberRenewed, before: sent.(time.Duration), after: now}.note()
			time.Sleep(s.delay) // real time: answers must be late
		}
	}
	return nil
}

// dialer returns a dialer that connects to Ways, if there are any.
func (p memberPlan) dialer() func(context.Context, string) (net.Conn, error) {
	var n atomic.Int64
	return func(ctx context.Context, address string) (net.Conn, error) {
		if len(p.Ways) > 0 {
			address = p.Ways[min(int(n.Add(1)), len(p.Ways))-1]
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
}

// working returns a worker that prints a line every few milliseconds while the runner is within its trust window.
func working(r *lock.Runner) ifrit.Runner {
	return ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
		close(ready)
		tick := time.NewTicker(beatInterval)
		defer tick.Stop()
		for {
			before := sinceBoot()
			if token, held := r.Held(); held {
				memberLine{kind: memberBeat, before: before, after: sinceBoot(), token: token}.note()
			}
			select {
			case <-signals:
				return nil
			case <-tick.C:
			}
		}
	})
}

// noting is a client that prints the outcome of each call of Lock.
type noting struct {
	models.LocketClient
	delay time.Duration
}

func (c *noting) Lock(ctx context.Context, in *models.LockRequest, opts ...grpc.CallOption) (*models.LockResponse, error) {
	l := memberLine{kind: memberRenewed, before: sinceBoot()}
	resp, err := c.LocketClient.Lock(ctx, in, opts...)
	l.after, l.token = sinceBoot(), resp.GetToken()
	if err != nil {
		l.kind, l.text = memberFailed, err.Error()
	}
	l.note()
	if err == nil {
		time.Sleep(c.delay) // real time: answers must be late
	}
	return resp, err
}
