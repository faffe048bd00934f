package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/locket-service/locket/models"
)

// event is something that a member did, on a line of its standard output.
type event struct {
	At    int64   `json:"at"` // in ns since 1970
	Who   string  `json:"who"`
	What  string  `json:"what"`
	Index uint64  `json:"index,omitempty"`
	Epoch uint64  `json:"epoch,omitempty"`
	Took  float64 `json:"took,omitempty"` // in ms
	Load  *load   `json:"load,omitempty"`
}

// memberFlags are the flags of a member: a server with the rule that says who decides, and nothing else of Locket.
type memberFlags struct {
	name, folder, client, peer, cluster  string // of an embedded etcd
	endpoints                            string // of another etcd
	file                                 string // of a file log
	prefix, service                      string
	heartbeat, election                  int
	beat, silence, try, duration, gather time.Duration
	depth, callers                       int
	candidate, quiet                     bool
	epochOnly, doubles                   bool
}

func parseMember(args []string) (f memberFlags, err error) {
	flags := flag.NewFlagSet("member", flag.ContinueOnError)
	flags.StringVar(&f.name, "name", "a", "its name")
	flags.StringVar(&f.folder, "folder", "", "the data of an embedded etcd")
	flags.StringVar(&f.client, "client", "", "where the embedded etcd listens to clients")
	flags.StringVar(&f.peer, "peer", "", "where it listens to its peers")
	flags.StringVar(&f.cluster, "cluster", "", "all of them: a=http://...,b=...")
	flags.StringVar(&f.endpoints, "endpoints", "", "another etcd, in the order of preference")
	flags.StringVar(&f.file, "file", "", "a file log instead")
	flags.StringVar(&f.prefix, "prefix", "/locket/", "of the keys")
	flags.StringVar(&f.service, "service", "", "where it serves Lock and Release")
	flags.IntVar(&f.heartbeat, "heartbeat", 100, "of etcd, in ms")
	flags.IntVar(&f.election, "election", 1000, "of etcd, in ms")
	flags.DurationVar(&f.beat, "beat", 250*time.Millisecond, "the longest time between records of a decider")
	flags.DurationVar(&f.silence, "silence", time.Second, "raise the epoch after that time without a record, 0 for never")
	flags.DurationVar(&f.try, "try", 300*time.Millisecond, "the limit of one attempt")
	flags.DurationVar(&f.duration, "duration", time.Second, "of the load inside")
	flags.DurationVar(&f.gather, "gather", 0, "how long a batch waits for the callers that were just answered")
	flags.IntVar(&f.depth, "depth", 1, "how many appends may be under way")
	flags.IntVar(&f.callers, "callers", 0, "callers inside, which load the log once this member decides")
	flags.BoolVar(&f.candidate, "candidate", false, "raise the epoch at once")
	flags.BoolVar(&f.epochOnly, "epoch-only", false, "compare only the epoch in a raise")
	flags.BoolVar(&f.doubles, "doubles", false, "double the limit of each next attempt to append")
	flags.BoolVar(&f.quiet, "quiet", false, "print no appends")
	return f, flags.Parse(args)
}

// member follows the log, and decides while the epoch is its own.
type member struct {
	memberFlags
	node *embed.Etcd
	etcd *etcdLog
	out  *json.Encoder

	mu             sync.Mutex
	applied, epoch uint64
	heard          time.Time
	deciding       *batcher
}

func runMember(args []string) error {
	debug.SetGCPercent(1000)
	f, err := parseMember(args)
	if err != nil {
		return err
	}
	m := &member{memberFlags: f, out: json.NewEncoder(os.Stdout), heard: time.Now()}
	if f.service != "" {
		if err := m.serve(); err != nil {
			return err
		}
	}
	if f.file != "" {
		files, err := newFileLog(f.file)
		if err != nil {
			return err
		}
		m.say("ready", 0, 0)
		return m.decide(files, 1, 2)
	}
	if err := m.connect(); err != nil {
		return err
	}
	if m.node != nil && !m.quiet {
		go m.watchLeader()
	}
	m.say("ready", 0, 0)
	go churn()
	ctx := context.Background()
	go m.etcd.follow(ctx, m.apply, func(err error) { m.say("follow: "+describe(err), 0, 0) })
	m.rule(ctx)
	return nil
}

// connect starts the embedded etcd, or dials the other one.
func (m *member) connect() error {
	var clients []*etcd.Client
	if m.endpoints == "" {
		node, err := startEmbedded(m.memberFlags)
		if err != nil {
			return err
		}
		m.node, clients = node, []*etcd.Client{v3client.New(node.Server)}
	} else {
		var err error
		if clients, err = dialEach(strings.Split(m.endpoints, ",")); err != nil {
			return err
		}
	}
	m.etcd = newEtcdLog(clients, m.prefix, m.try)
	m.etcd.epochOnly, m.etcd.doubles = m.epochOnly, m.doubles
	return nil
}

func startEmbedded(f memberFlags) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialCluster = f.name, f.folder, f.cluster
	client, peer := url.URL{Scheme: "http", Host: f.client}, url.URL{Scheme: "http", Host: f.peer}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.TickMs, config.ElectionMs = uint(f.heartbeat), uint(f.election)
	config.LogLevel, config.LogOutputs = "fatal", []string{"/dev/null"}
	config.QuotaBackendBytes = 8 << 30
	node, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-node.Server.ReadyNotify():
		return node, nil
	case err := <-node.Err():
		return nil, err
	case <-time.After(time.Minute):
		return nil, errors.New("etcd is not ready after a minute")
	}
}

// dialEach returns a client for each endpoint.
func dialEach(endpoints []string) (clients []*etcd.Client, err error) {
	for _, endpoint := range endpoints {
		client, err := etcd.New(etcd.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second, Logger: silent})
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func (m *member) say(what string, index uint64, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.print(event{What: what, Index: index, Epoch: m.epoch, Took: ms(took)})
}

func (m *member) print(e event) {
	e.At, e.Who = time.Now().UnixNano(), m.name
	if !m.quiet || e.What != "append" {
		_ = m.out.Encode(e)
	}
}

func (m *member) apply(r record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied, m.epoch, m.heard = r.index, r.epoch, time.Now()
}

// rule raises the epoch when the log has been silent for too long, and then decides.
func (m *member) rule(ctx context.Context) {
	for first := true; ; first = false {
		if !first || !m.candidate {
			m.awaitSilence(ctx)
		}
		m.mu.Lock()
		r := record{index: m.applied + 1, epoch: m.epoch + 1, body: []byte("raised by " + m.name + " " + strconv.FormatInt(time.Now().UnixNano(), 10))}
		seen := m.epoch
		m.mu.Unlock()
		if err := m.raise(ctx, seen, r); err != nil {
			m.say("raise refused: "+err.Error(), r.index, 0)
			m.etcd.elsewhere() // the watch may lag
			m.mu.Lock()
			m.heard = time.Now().Add(2*m.beat - m.silence) // a decider that is there appends the next record before
			m.mu.Unlock()
			continue
		}
		m.say("raised", r.index, 0)
		if m.epochOnly {
			last, err := m.etcd.barrier(ctx, r.index-1)
			if err != nil {
				continue
			}
			r.index = last
		}
		err := m.decide(m.etcd, r.epoch, r.index+1)
		m.say("stood back: "+describe(err), 0, 0)
		m.mu.Lock()
		m.heard = time.Now()
		m.mu.Unlock()
	}
}

func (m *member) awaitSilence(ctx context.Context) {
	if m.silence == 0 {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		m.mu.Lock()
		silent := time.Since(m.heard)
		m.mu.Unlock()
		if silent > m.silence {
			return
		}
		wait(ctx, 20*time.Millisecond)
	}
}

// raise attempts the same raise until its outcome is known.
func (m *member) raise(ctx context.Context, seen uint64, r record) error {
	for {
		err := m.etcd.raise(ctx, seen, r)
		if err == nil || errors.Is(err, errLater) {
			return err
		}
		m.say("raise failed: "+describe(err), r.index, 0)
		wait(ctx, 50*time.Millisecond)
	}
}

func (m *member) decide(l log, epoch, next uint64) error {
	b := newBatcher(l, epoch, m.beat, m.depth, m.say)
	b.gatherFor = m.gather
	m.mu.Lock()
	m.deciding = b
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.deciding = nil
		m.mu.Unlock()
	}()
	if m.callers > 0 {
		go func() {
			found := measure(b, m.callers, m.duration)
			m.mu.Lock()
			m.print(event{What: "load", Load: &found})
			m.mu.Unlock()
		}()
	}
	return b.run(context.Background(), next)
}

// claimLike is about as large as a claim in a server's memory, with as many pointers.
type claimLike struct {
	id, owner, resource, value string
	numbers                    [16]uint64
}

// churn waits for SIGUSR1, and then keeps a million claims in memory and replaces them, so that the collector is always busy, for a while.
func churn() {
	start := make(chan os.Signal, 1)
	signal.Notify(start, syscall.SIGUSR1)
	<-start
	live := make([]*claimLike, 1_000_000)
	end := time.Now().Add(faultLasts)
	for i := 0; time.Now().Before(end); i++ {
		name := strconv.Itoa(i)
		live[i%len(live)] = &claimLike{id: name, owner: name + "o", resource: name + "r", value: name + "v", numbers: [16]uint64{uint64(i)}}
	}
}

// watchLeader prints which member the embedded etcd says leads, whenever that changes.
func (m *member) watchLeader() {
	for was := uint64(0); ; time.Sleep(10 * time.Millisecond) {
		if now := uint64(m.node.Server.Leader()); now != was {
			was = now
			name := "nobody"
			if lead := m.node.Server.Cluster().Member(m.node.Server.Leader()); lead != nil {
				name = lead.Name
			}
			m.say("etcd's leader: "+name, 0, 0)
		}
	}
}

// service serves Lock and Release of Locket's gRPC service, with a record's worth of bytes for each call and no rules.
type service struct {
	models.UnimplementedLocketServer
	member *member
}

func (m *member) serve() error {
	listener, err := net.Listen("tcp", m.service)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.InitialWindowSize(256<<10), grpc.InitialConnWindowSize(1<<20), grpc.NumStreamWorkers(512))
	models.RegisterLocketServer(server, &service{member: m})
	go func() { _ = server.Serve(listener) }()
	return nil
}

func (d *service) submit(request proto.Message) error {
	d.member.mu.Lock()
	b := d.member.deciding
	d.member.mu.Unlock()
	if b == nil {
		return status.Error(codes.Unavailable, errNotDecider.Error())
	}
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	if err := b.submit(append(body, make([]byte, max(0, commandSize-len(body)))...)); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// Lock implements models.LocketServer.
func (d *service) Lock(_ context.Context, request *models.LockRequest) (*models.LockResponse, error) {
	return &models.LockResponse{Token: 1_800_000_000_000_000}, d.submit(request)
}

// Release implements models.LocketServer.
func (d *service) Release(_ context.Context, request *models.ReleaseRequest) (*models.ReleaseResponse, error) {
	return &models.ReleaseResponse{}, d.submit(request)
}

// describe names an error as a program recognises it.
func describe(err error) string {
	if err == nil {
		return "none"
	}
	return fmt.Sprintf("%T %s %q", unwrapAll(err), codeOf(err), err.Error())
}
