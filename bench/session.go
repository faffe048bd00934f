package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/locket-service/locket/models"
)

// shortSession is a short run of sessionBench.
var shortSession = map[string]string{"rounds": "1", "seconds": "2"}

// sessionBench measures lock and unlock over the streams of sessions, pipelined, beside the unary
// calls over as many connections, and both beside an echo of the same messages.
func sessionBench(args []string) error {
	flags := flag.NewFlagSet("session", flag.ContinueOnError)
	flight := flags.Int("flight", 256, "how many commands are under way, over all streams together")
	streams := flags.String("streams", "1,4", "numbers of streams, or connections of the unary calls")
	rounds := flags.Int("rounds", 3, "how often each target is measured")
	seconds := flags.Float64("seconds", 4, "how long one measurement lasts")
	targets := flags.String("targets", "echo,raft,mariadb", "what to measure")
	dsn := flags.String("mysql", os.Getenv("LOCKET_TEST_MYSQL_DSN"), "another database server than a private MariaDB")
	warm, err := parse(flags, args, shortSession)
	if err != nil {
		return err
	}
	counts, err := parseInts(*streams)
	if err != nil {
		return err
	}
	lab, err := newLab(*dsn, strings.Split(*targets, ","), warm)
	if err != nil {
		return err
	}
	defer lab.close()
	fmt.Println("| streams | way | target | operations/s | of the echo | p50 ms | p99 ms |")
	fmt.Println("| ---: | --- | --- | ---: | ---: | ---: | ---: |")
	for _, n := range counts {
		for _, way := range []string{"unary", "session"} {
			table := newTable(lab.targets)
			for range *rounds {
				for _, target := range lab.targets {
					sample, err := lab.measureSessions(way, target, n, *flight, time.Duration(*seconds*float64(time.Second)))
					if err != nil {
						return fmt.Errorf("%s, %s: %w", way, target, err)
					}
					table.add(n, target, sample)
				}
			}
			echo := table.median(n, "echo")
			for _, target := range lab.targets {
				s := table.median(n, target)
				fmt.Printf("| %d | %s | %s | %.0f | %.2f | %.2f | %.2f |\n", n, way, target, s.PerSecond, s.PerSecond/echo.PerSecond, ms(s.P50), ms(s.P99))
			}
		}
	}
	return nil
}

// measureSessions loads a target with lock and unlock.
func (l *lab) measureSessions(way, target string, streams, flight int, duration time.Duration) (result sample, err error) {
	if way == "unary" {
		return l.measure(target, flight, streams, duration)
	}
	server, err := l.start(target)
	if err != nil {
		return result, err
	}
	defer server.stop()
	err = child(&result, "load-session", "-address", server.grpc, "-flight", strconv.Itoa(flight),
		"-streams", strconv.Itoa(streams), "-duration", duration.String())
	return result, err
}

// loadSession is the process that sends commands over sessions' streams. It prints a sample as JSON.
func loadSession(args []string) error {
	flags := flag.NewFlagSet("load-session", flag.ContinueOnError)
	address := flags.String("address", "", "where to send commands")
	flight := flags.Int("flight", 1, "how many are under way")
	streams := flags.Int("streams", 1, "over how many streams")
	duration := flags.Duration("duration", time.Second, "for how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var all []*pipeline
	for i := range *streams {
		p, err := openPipeline(*address, i, *flight / *streams)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	if _, err := drivePipelines(all, *duration/5); err != nil { // warm up
		return err
	}
	start := time.Now()
	latencies, err := drivePipelines(all, *duration)
	took := time.Since(start)
	if err != nil {
		return err
	}
	slices.Sort(latencies)
	at := func(q float64) time.Duration { return latencies[int(q*float64(len(latencies)-1))] }
	return json.NewEncoder(os.Stdout).Encode(sample{PerSecond: float64(len(latencies)) / took.Seconds(), P50: at(0.5), P99: at(0.99)})
}

func drivePipelines(all []*pipeline, duration time.Duration) (latencies []time.Duration, err error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
	)
	end := time.Now().Add(duration)
	for _, p := range all {
		group.Go(func() {
			some, failed := p.run(end)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, some...)
			err = errors.Join(err, failed)
		})
	}
	group.Wait()
	return latencies, err
}

// pipeline is a session's stream with some commands under way: each lane locks and unlocks one
// resource after the other.
type pipeline struct {
	stream   grpc.BidiStreamingClient[models.SessionRequest, models.SessionResponse]
	number   int
	lanes    []lane
	sequence uint64
	sent     map[uint64]int // the lane of each command under way
}

type lane struct {
	round  int
	locked bool
	began  time.Time
}

func openPipeline(address string, number, lanes int) (*pipeline, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	stream, err := models.NewLocketClient(conn).Session(context.Background())
	if err != nil {
		return nil, err
	}
	p := &pipeline{stream: stream, number: number, lanes: make([]lane, lanes), sent: make(map[uint64]int)}
	open := &models.OpenSession{Id: fmt.Sprintf("bench-session-%d", 1000+number), Secret: "0123456789abcdef", Ttl: 3600}
	if err := p.send(&models.SessionRequest{Command: &models.SessionRequest_Open{Open: open}}); err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return p, err
}

func (p *pipeline) send(request *models.SessionRequest) error {
	p.sequence++
	request.Sequence = p.sequence
	return p.stream.Send(request)
}

// run goes on until a moment, and then takes the answers that are under way.
func (p *pipeline) run(end time.Time) (latencies []time.Duration, err error) {
	for i := range p.lanes {
		if err := p.next(i); err != nil {
			return nil, err
		}
	}
	for len(p.sent) > 0 {
		response, err := p.stream.Recv()
		if err != nil {
			return nil, err
		}
		i, known := p.sent[response.GetSequence()]
		if !known || response.GetStatus() == nil {
			return nil, fmt.Errorf("unexpected %v", response)
		}
		delete(p.sent, response.GetSequence())
		latencies = append(latencies, time.Since(p.lanes[i].began))
		if p.lanes[i].locked = !p.lanes[i].locked; !p.lanes[i].locked && !time.Now().Before(end) {
			continue
		}
		if err := p.next(i); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// next sends the next command of a lane.
func (p *pipeline) next(i int) error {
	l := &p.lanes[i]
	if !l.locked {
		l.round++
	}
	key := fmt.Sprintf("bench/%d/%d/%d", p.number, i, l.round%names)
	l.began = time.Now()
	request := &models.SessionRequest{Command: &models.SessionRequest_Lock{Lock: &models.LockCommand{Resource: key, Value: "10.0.0.1:8080"}}}
	if l.locked {
		request = &models.SessionRequest{Command: &models.SessionRequest_Unlock{Unlock: &models.UnlockCommand{Resource: key}}}
	}
	p.sent[p.sequence+1] = i
	return p.send(request)
}

// Session answers each message at once with one of the size of the real ones.
func (e *echo) Session(stream grpc.BidiStreamingServer[models.SessionRequest, models.SessionResponse]) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		status := &models.SessionStatus{Resource: request.GetLock().GetResource() + request.GetUnlock().GetResource(), Claim: "06h03t8k4lqat51vd3tbgjpv8s"}
		if request.GetLock() != nil {
			status.Current, status.Token = models.Holding_HOLDING_HELD, 1_800_000_000_000_000+e.token.Add(1)
		}
		err = stream.Send(&models.SessionResponse{Sequence: request.GetSequence(), Event: &models.SessionResponse_Status{Status: status}})
		if err != nil {
			return err
		}
	}
}
