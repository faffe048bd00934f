package robustness_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/internal/rules/claim"
	"github.com/locket-service/locket/keychain"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
	"github.com/locket-service/locket/tests/recorder"
)

// together runs clients of every kind on the same few resources, and records all their requests, answers and events.
type together struct {
	*recorder.Recorder
	parties
	servers    []*fixtures.Locket
	grpc, http []string           // the clients' addresses of the servers
	conns      []*grpc.ClientConn // recorded, to each server
	keys       []string
	ids        atomic.Int64
	held       *ledger                    // has when clients trusted that they held a resource
	quiet      func(stored []claim.Claim) // called with the first server's claims when no client makes changes any more; or nil

	ctx  context.Context // the context of the clients; when it is done they end what they hold
	done sync.WaitGroup
}

// TestTogether: clients of every kind use the same resources, at two servers with one database, with and without access rules, and at one server
// with the embedded engine. The rules explain all answers, and all events of sessions and watches.
func TestTogether(t *testing.T) {
	second := func() { time.Sleep(time.Second) } // real time: of load
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		a, b := pairOfServers(t)
		newTogether(a, b).use(t, second)
	})
	t.Run("two servers with access rules", func(t *testing.T) {
		t.Parallel()
		withParties(t, newParties(t)).use(t, second)
	})
	t.Run(harness.EngineEmbedded, func(t *testing.T) {
		t.Parallel()
		newTogether(fixtures.StartLocket(t, harness.Embedded(t))).use(t, second)
	})
}

// TestTogetherDisturbed is TestTogether while servers are killed and stopped, and connections to servers and the database are cut. No two clients
// trust at the same time that they hold the same resource. TestSoakTogetherDisturbed disturbs more often.
func TestTogetherDisturbed(t *testing.T) {
	t.Run("two servers", func(t *testing.T) {
		t.Parallel()
		disturbPair(t, 3)
	})
	t.Run(harness.EngineEmbedded, func(t *testing.T) {
		t.Parallel()
		disturbEmbedded(t, 3)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		disturbCluster(t, 3)
	})
}

func disturbPair(t *testing.T, rounds int) {
	t.Helper()
	database, proxy := harness.Proxied(t)
	w := newTogether(fixtures.StartLocket(t, database), fixtures.StartLocket(t, database))
	d := w.disturber(t)
	d.proxies = append(d.proxies, proxy)
	w.use(t, func() { d.disturb(rounds, func() {}) })
}

func disturbEmbedded(t *testing.T, rounds int) {
	t.Helper()
	w := newTogether(fixtures.StartLocket(t, harness.Embedded(t)))
	d := w.disturber(t)
	w.use(t, func() { d.disturb(rounds, func() {}) })
}

func disturbCluster(t *testing.T, rounds int) {
	t.Helper()
	w := newTogether(harness.Cluster(t, 3)...)
	d := w.disturber(t)
	w.use(t, func() { d.disturb(rounds, func() {}) })
}

func newTogether(servers ...*fixtures.Locket) *together {
	w := &together{Recorder: recorder.New(), servers: servers, held: newLedger()}
	for i := range 4 {
		w.keys = append(w.keys, fmt.Sprint("key-", i))
	}
	for _, server := range servers {
		w.grpc, w.http = append(w.grpc, server.Address()), append(w.http, server.HTTPAddress())
	}
	return w
}

// withParties has two servers with access rules.
func withParties(t *testing.T, p parties) *together {
	t.Helper()
	database := "mysql:" + harness.MySQL(t)
	w := newTogether(fixtures.StartLocket(t, database, p.flags...), fixtures.StartLocket(t, database, p.flags...))
	w.parties = p
	return w
}

// disturber puts proxies between the clients and the servers, and returns a function that disturbs them.
func (w *together) disturber(t *testing.T) *disturber {
	t.Helper()
	d := &disturber{t: t, servers: w.servers}
	for i := range w.servers {
		for _, address := range []*string{&w.grpc[i], &w.http[i]} {
			proxy := fixtures.NewProxy(t, *address)
			*address = proxy.Addr()
			d.proxies = append(d.proxies, proxy)
		}
	}
	return d
}

// use lets clients use the servers until meanwhile returns, and checks all answers and events.
func (w *together) use(t *testing.T, meanwhile func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w.ctx = ctx
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	var watches sync.WaitGroup
	begin := func(watch func(began func())) {
		began := make(chan struct{})
		watches.Go(func() { watch(sync.OnceFunc(func() { close(began) })) })
		harness.Await(t, "beginning of a watch", began)
	}
	reader := recorder.New() // of watches that see fewer claims
	for _, address := range w.grpc {
		conn := dial(t, address, w.worker.options(w.Recorder))
		w.conns = append(w.conns, conn)
		begin(func(began func()) { w.watch(watching, conn, began) })
		if w.reader != "" {
			conn := dial(t, address, w.reader.options(reader))
			begin(func(began func()) { w.watch(watching, conn, began) })
		}
	}
	begin(func(began func()) { w.watchEvents(watching, began) })
	w.Busy()
	reader.Busy()
	watches.Go(func() { w.moveWatch(watching) })
	for i := range 4 {
		w.done.Go(func() { w.repeat(func() { w.claim(i) }) })
		w.done.Go(func() { w.repeat(func() { w.session(i) }) })
	}
	for i := range 2 {
		w.done.Go(func() { w.repeat(func() { w.rest(i) }) })
		w.done.Go(func() { w.keep(t, i) })
		w.done.Go(func() { w.campaign(t, i) })
		w.done.Go(func() { w.repeat(func() { w.runner(i) }) })
	}
	program := w.program(t)
	w.done.Go(func() { w.repeat(program) })
	meanwhile()
	stop()
	w.done.Wait()
	awaitQuiet(t, w.client(0))
	stored := harness.Stored(t, w.servers[0])
	if w.quiet != nil {
		w.quiet(stored)
	}
	seen := slices.DeleteFunc(slices.Clone(stored), func(c claim.Claim) bool { return !slices.Contains(readable, c.Resource) })
	harness.Eventually(t, func() error { return errors.Join(w.CheckWatches(stored), reader.CheckWatches(seen)) })
	stopWatching()
	watches.Wait()
	checking := time.Now()
	if err := w.Check(stored); err != nil {
		t.Error(err)
	}
	report(t, w.held.doubleHolders())
	harness.LogTime(t, fmt.Sprintf("the check of %v, %d holds and %d claims", w, len(w.held.records), len(stored)), checking)
}

// repeat calls a function repeatedly.
func (w *together) repeat(do func()) {
	for w.ctx.Err() == nil {
		do()
		w.pause()
	}
}

func (w *together) pause() { harness.Think(5 * time.Millisecond) }

// insist repeats a request while it is refused temporarily, for example while the other server keeps the row of the
// resource locked. A claim that a client leaves behind holds the resource for its TTL.
func (w *together) insist(refused func() bool) {
	for end := time.Now().Add(harness.HangTimeout); refused() && time.Now().Before(end); {
		harness.Think(100 * time.Millisecond)
	}
}

func momentary(err error) bool { return status.Code(err) == codes.Unavailable }

func (w *together) key() string { return w.keys[rand.IntN(len(w.keys))] }

func (w *together) newID(kind string) string { return fmt.Sprint(kind, "-", w.ids.Add(1)) }

func (w *together) client(i int) models.LocketClient {
	return models.NewLocketClient(w.conns[i%len(w.conns)])
}

// claim uses one lock or claim at a server.
func (w *together) claim(server int) {
	client, ctx := w.client(server), context.Background()
	if rand.IntN(3) == 0 {
		w.lock(ctx, client)
		return
	}
	request := &models.CreateClaimRequest{
		Resource: w.key(), Id: w.newID("claim"), Mode: models.Mode(rand.IntN(4) / 3), Ttl: proto.Float64(claimTTL.Seconds()), NoWait: rand.IntN(4) == 0,
	}
	request.Owner = request.GetId()
	if rand.IntN(10) == 0 {
		request.Ttl = proto.Float64(0.2) // it expires
	}
	if rand.IntN(3) == 0 {
		request.WaitTtl = proto.Float64(1)
	}
	c, err := client.CreateClaim(ctx, request)
	for err == nil && c.GetStatus() == waiting {
		if rand.IntN(4) == 0 {
			break
		}
		c, err = client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: request.GetId(), Timeout: durationpb.New(rand.N(200 * time.Millisecond))})
	}
	if err == nil && c.GetStatus() == waiting && request.WaitTtl != nil && rand.IntN(2) == 0 {
		return // nobody asks about it any more, and it ends by itself
	}
	w.pause()
	if rand.IntN(3) == 0 {
		_, _ = client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: request.GetId(), Ttl: proto.Float64(claimTTL.Seconds())})
	}
	aborts := rand.IntN(4) == 0
	w.insist(func() bool {
		if aborts {
			_, err = client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: request.GetId(), Status: models.Status_STATUS_ABORTED})
		} else {
			_, err = client.EndClaim(ctx, &models.EndClaimRequest{Id: request.GetId()})
		}
		return momentary(err)
	})
}

// lock takes a lock and releases it. It does not renew: the answer to a renewal of a lock has no version, so the check could not assign it to a
// request. Claims are renewed by their ids.
func (w *together) lock(ctx context.Context, client models.LocketClient) {
	resource := &models.Resource{Key: w.key(), Owner: w.newID("owner"), TypeCode: models.TypeCode_LOCK}
	if _, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: int64(claimTTL.Seconds())}); err != nil && !momentary(err) { // or it may be held
		return
	}
	w.pause()
	w.insist(func() bool {
		_, err := client.Release(ctx, &models.ReleaseRequest{Resource: resource})
		return momentary(err)
	})
}

func (w *together) url(server int) string { return "http://" + w.http[server%len(w.http)] }

// from returns the items of all servers, beginning with one.
func from(server int, items []string) []string {
	server %= len(items)
	return slices.Concat(items[server:], items[:server])
}

// rest uses a claim over REST.
func (w *together) rest(server int) {
	client := &http.Client{Transport: w.Transport(w.worker)}
	id := w.newID("rest")
	send := func(method, path, body string) (code int) {
		req, err := http.NewRequest(method, w.url(server)+path, strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		if req.Header.Set("Content-Type", "application/json"); rand.IntN(2) == 0 {
			req.Header.Set("Prefer", "wait=1")
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	path := "/v1/claims/" + id + "/"
	code := send("POST", "/v1/claims/", fmt.Sprintf(`{"resource": %q, "id": %q, "owner": %q, "mode": %q, "ttl": %v, "no_wait": %t}`,
		w.key(), id, id, []claim.Units{claim.Exclusive, claim.Shared}[rand.IntN(2)], claimTTL.Seconds(), rand.IntN(3) == 0))
	for code == http.StatusAccepted || code == http.StatusConflict && rand.IntN(3) > 0 {
		code = send("PATCH", path, `{"status": "active"}`)
	}
	switch rand.IntN(4) {
	case 0:
		send("PATCH", path, `{"ttl": 10}`)
	case 1:
		send("GET", path, "")
	case 2:
		send("PUT", path, `{"ttl": 10, "status": "active"}`)
	}
	if rand.IntN(2) == 0 {
		send("PATCH", path, `{"status": "released"}`)
	}
	w.insist(func() bool {
		code := send("DELETE", path, "")
		return code == 0 || code == http.StatusServiceUnavailable
	})
}

// keep uses claims of a keychain.
func (w *together) keep(t *testing.T, server int) {
	var urls []string
	for i := range w.http {
		urls = append(urls, w.url(server+i))
	}
	keys, err := keychain.New(urls[0], keychain.WithFailover(urls[1:]...), keychain.WithTransport(w.Transport(w.worker)),
		keychain.WithLogger(slog.New(slog.DiscardHandler)), keychain.WithReleaseTimeout(harness.HangTimeout))
	if err != nil {
		t.Error(err)
		return
	}
	w.repeat(func() {
		key := w.key()
		if c, err := keys.Claim(w.ctx, key, keychain.WithOwner(w.newID("keychain")), keychain.WithTTL(leaseTTL)); err == nil {
			w.hold(key, c.Token(), c.Held)
			if err := c.Release(context.Background()); err != nil && !errors.Is(err, keychain.ErrLost) {
				t.Error(err)
			}
		}
	})
	if err := keys.Close(); err != nil {
		t.Error(err)
	}
}

// campaign is elected and resigns, and observes the leaders.
func (w *together) campaign(t *testing.T, server int) {
	client, err := lock.NewClient(from(server, w.grpc), lock.WithTTL(leaseTTL), lock.WithReleaseTimeout(harness.HangTimeout),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithDial(conn.WithInsecure(), conn.WithDialOptions(w.worker.options(w.Recorder)...)))
	if err != nil {
		t.Error(err)
		return
	}
	var observing sync.WaitGroup
	election := lock.NewElection(client, w.keys[0])
	observing.Go(func() {
		for range election.Observe(w.ctx) { // its watch is recorded
			w.pause()
		}
	})
	w.repeat(func() {
		if hold, err := election.Campaign(w.ctx, "value"); err == nil {
			w.hold(w.keys[0], hold.Token(), func() bool { return hold.Err() == nil })
			if err := election.Resign(context.Background()); err != nil && !momentary(err) { // after such an error the release continues by itself
				t.Error(err)
			}
		}
	})
	observing.Wait()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// leaseTTL is the TTL of the clients that renew. They may lose what they hold while servers are stopped.
const leaseTTL = 2 * time.Second

// claimTTL is the TTL of the claims and locks that nobody renews in time: their clients may go without releasing them.
const claimTTL = 15 * time.Second

// hold acts as the holder of a resource for a while, as long as the client trusts that it is. It notes when it did.
// Some holders keep the resource so long that they lose it when a server is stopped.
func (w *together) hold(key string, token uint64, trusts func() bool) {
	longest := 10 * time.Millisecond
	if rand.IntN(8) == 0 {
		longest = 2 * leaseTTL
	}
	leave := time.After(rand.N(longest)) // real time: nothing is waited for
	for {
		now := w.held.now()
		if !trusts() {
			return
		}
		w.held.trust(key, token, now) // it held it at that moment, since it does now
		select {
		case <-leave:
			return
		case <-w.ctx.Done():
			return
		default:
			w.pause()
		}
	}
}

// runner holds a resource as a process of ifrit does, by a claim.
func (w *together) runner(server int) {
	key, id := w.key(), w.newID("runner")
	runner := lock.NewClaimRunner(w.client(server), &models.CreateClaimRequest{Resource: key, Id: id, Owner: id, Ttl: proto.Float64(leaseTTL.Seconds())},
		lock.WithReleaseTimeout(harness.HangTimeout))
	signals, ready := make(chan os.Signal, 1), make(chan struct{})
	ended := harness.Later(func() error { return runner.Run(signals, ready) })
	select {
	case <-ready:
		token, _ := runner.Held()
		w.hold(key, token, func() bool {
			now, held := runner.Held()
			return held && now == token
		})
	case <-w.ctx.Done():
	case <-ended: // refused
		return
	}
	signals <- os.Interrupt
	<-ended
}

// program returns a function that calls ` + "`locket run`" + `.
func (w *together) program(t *testing.T) func() {
	t.Helper()
	listener := fixtures.Listen(t)
	forwarder := recorder.Forward(w.conns[0])
	go func() { _ = forwarder.Serve(listener) }()
	t.Cleanup(forwarder.Stop)
	path := fixtures.LocketProgram(t)
	return func() {
		key := w.key()
		cmd := exec.CommandContext(w.ctx, path, "run", key, "--ttl", "10s", "--owner", w.newID("run"), "--",
			"sh", "-c", "echo $LOCKET_TOKEN; for i in 1 2 3 4 5; do date +%s%N; sleep 0.02; done")
		cmd.Env = append(fixtures.CleanEnv(), "LOCKET_ADDRESS="+listener.Addr().String(), "LOCKET_CONTEXT_FILE="+os.DevNull)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		output, _ := cmd.Output() // it may have been refused
		var token uint64
		for line := range strings.Lines(string(output)) {
			number, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
			switch {
			case err != nil:
				t.Errorf("%s: %v", line, err)
			case token == 0:
				token = number
			default:
				w.held.trust(key, token, int64(number)-w.held.began.UnixNano())
			}
		}
	}
}

// session sends random commands over a stream, several at the same time. Then it closes the session, resumes it at another server, or lets it
// expire.
func (w *together) session(server int) {
	id := harness.SessionID(w.newID("s"))
	open := &models.OpenSession{Id: id, Secret: harness.SessionSecret, Owner: id, Ttl: 1}
	commands := harness.NewCommands(w.keys, rand.IntN)
	for w.stream(server, open, commands) {
		open.Resume = true
		server++
	}
}

// stream is one stream of a session. It reports whether the session must be resumed.
func (w *together) stream(server int, open *models.OpenSession, commands *harness.Commands) (more bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := w.client(server).Session(ctx)
	if err != nil {
		return false
	}
	answers := harness.Answers(stream)
	sequence, under := uint64(0), 0
	send := func(request *models.SessionRequest) bool {
		sequence++
		request.Sequence = sequence
		if stream.Send(request) != nil {
			return false
		}
		for under++; under > rand.IntN(4); under-- {
			if _, ok := <-answers; !ok {
				return false
			}
		}
		return true
	}
	if !send(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}) {
		return false
	}
	for range 5 + rand.IntN(30) {
		if !send(commands.Next()) {
			return false
		}
		w.pause()
	}
	switch ending := rand.IntN(6); {
	case ending == 0 || w.ctx.Err() != nil && ending < 5:
		return ending == 0 && w.ctx.Err() == nil
	case ending == 1:
		return true
	}
	if send(&models.SessionRequest{Command: &models.SessionRequest_Close{Close: &models.CloseSession{}}}) {
		for range answers {
		}
	}
	return false
}

// watch watches over a connection, again when that breaks.
func (w *together) watch(ctx context.Context, conn *grpc.ClientConn, began func()) {
	for ; ctx.Err() == nil; w.pause() {
		stream, err := models.NewLocketClient(conn).Watch(ctx, &models.WatchRequest{})
		for err == nil {
			_, err = stream.Recv()
			began()
		}
	}
}

// watchEvents watches over HTTP, again when the connection breaks.
func (w *together) watchEvents(ctx context.Context, began func()) {
	for ; ctx.Err() == nil; w.pause() {
		_ = w.Events(ctx, &http.Client{Transport: w.worker}, w.url(0), began)
	}
}

// moveWatch watches at one server after the other for a while: from the last cursor on, or with a new snapshot; all resources, or one.
func (w *together) moveWatch(ctx context.Context) {
	request := &models.WatchRequest{}
	for i := 0; ctx.Err() == nil; i++ {
		part, cancel := context.WithTimeout(ctx, 50*time.Millisecond+rand.N(200*time.Millisecond))
		stream, err := w.client(i).Watch(part, request)
		for err == nil {
			var response *models.WatchResponse
			if response, err = stream.Recv(); response.GetCursor() != "" {
				request.Cursor = response.GetCursor()
			}
		}
		cancel()
		w.pause()
		if rand.IntN(4) == 0 {
			request = &models.WatchRequest{}
			if rand.IntN(2) == 0 {
				request.Resource = proto.String(w.key())
			}
		} else {
			request = proto.Clone(request).(*models.WatchRequest)
		}
	}
}
