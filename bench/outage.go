package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/models"
)

// loadOutage is the role of callers while another server is ended by a signal. It prints how long the slowest call took, with
// its repetitions, as JSON.
func loadOutage(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	var workers []worker
	for caller := range f.callers {
		workers = append(workers, func(end time.Time, took *histogram) error {
			return persist(clients[caller%len(clients)], caller, end, func(begin time.Time) { took.add(time.Since(begin)) })
		})
	}
	if _, err := runAll(workers, f.duration/5); err != nil {
		return err
	}
	ended := make(chan error, 1)
	time.AfterFunc(f.duration/5, func() { ended <- syscall.Kill(f.victim, syscall.Signal(f.signal)) })
	took, err := runAll(workers, f.duration)
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result{slowest: ms(took.max)})
}

// persist acquires and releases one lock after the other until a point in time, and repeats calls that fail. done is called after each call.
func persist(client models.LocketClient, caller int, end time.Time, done func(begin time.Time)) error {
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(30*time.Second))
	defer cancel()
	for i := 0; i == 0 || time.Now().Before(end); i++ {
		resource := &models.Resource{
			Key: fmt.Sprintf("outage/%d/%d", caller, i%names), Owner: fmt.Sprint("caller-", caller),
			Value: "10.0.0.1:8080", TypeCode: models.TypeCode_LOCK,
		}
		for _, call := range []func() error{
			func() error {
				_, err := client.Lock(ctx, &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				return err
			},
			func() error {
				_, err := client.Release(ctx, &models.ReleaseRequest{Resource: resource})
				return err
			},
		} {
			begin := time.Now()
			if err := repeat(ctx, call); err != nil {
				return err
			}
			done(begin)
		}
	}
	return nil
}

// repeat repeats a call until it has an answer. A lock that is not found was released by an earlier attempt.
func repeat(ctx context.Context, call func() error) error {
	for {
		err := call()
		switch code := status.Code(err); {
		case err == nil, code == codes.NotFound:
			return nil
		case ctx.Err() != nil, code != codes.Unavailable && code != codes.Unknown && code != codes.Aborted:
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// loadPass is the role of two sessions at different servers. They take turns with one lock: the other one waits for it
// already when its holder releases it.
func loadPass(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	clients, err := f.dial()
	if err != nil {
		return err
	}
	var p passing
	for i := range p {
		if p[i], err = openStream(clients[i], i, 3600, false); err != nil {
			return err
		}
	}
	if err := p.lock(0, models.Holding_HOLDING_HELD); err != nil {
		return err
	}
	return f.drive([]worker{p.run})
}

// passing is two sessions. The first one holds the lock.
type passing [2]*stream

func (p *passing) lock(i int, want models.Holding) error {
	if err := p[i].send(lockRequest("pass")); err != nil {
		return err
	}
	return p[i].until(want)
}

// run is a worker; an operation lasts from the holder's release to the other session's grant.
func (p *passing) run(end time.Time, took *histogram) error {
	for again := true; again; again = time.Now().Before(end) {
		if err := p.lock(1, models.Holding_HOLDING_WAITING); err != nil {
			return err
		}
		begin := time.Now()
		if err := p[0].send(unlockRequest("pass")); err != nil {
			return err
		}
		if err := p[1].until(models.Holding_HOLDING_HELD); err != nil {
			return err
		}
		took.add(time.Since(begin))
		if err := p[0].until(models.Holding_HOLDING_NONE); err != nil {
			return err
		}
		p[0], p[1] = p[1], p[0]
	}
	return nil
}
