package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// outcomes appends a thousand records while etcd's leader is killed or paused, eight at once, and resolves each unknown outcome by the same
// transaction. Then it reads the log.
func outcomes(l *lab) error {
	fmt.Println("| etcd | fault | under way | attempts | attempts with unknown outcome | of them in the log | record before missing | slowest append, ms | in the log | lost | twice |")
	fmt.Println("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for range l.rounds {
		for _, version := range l.versions() {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				for _, depth := range []int{1, 8} {
					row, err := l.outcome(version, signal, depth)
					if err != nil {
						return err
					}
					fmt.Printf("| %s | %s | %d | %s |\n", version, signal, depth, row)
				}
			}
		}
	}
	return nil
}

// tally counts what the appends met.
type tally struct {
	mu                                       sync.Mutex
	attempts, unknown, already, gaps, failed int
	slowest                                  time.Duration
}

const appends = 1000

func (l *lab) outcome(version string, signal syscall.Signal, depth int) (string, error) {
	c, err := l.newCluster(3, tuning{100, 1000})
	if err != nil {
		return "", err
	}
	defer c.stop()
	if err := errors.Join(c.startEtcds(l.program("etcd-"+version)), c.lead("a")); err != nil {
		return "", err
	}
	clients, err := dialEach([]string{c.etcds[0].client, c.etcds[1].client, c.etcds[2].client})
	if err != nil {
		return "", err
	}
	log := newEtcdLog(clients, "/locket/", 300*time.Millisecond)
	if err := log.raise(context.Background(), 0, record{index: 1, epoch: 1}); err != nil {
		return "", err
	}
	var (
		t     tally
		group sync.WaitGroup
		free  = make(chan struct{}, depth)
	)
	for i := range appends {
		free <- struct{}{}
		if i == appends/2 {
			c.etcds[0].signal(signal)
		}
		r := record{index: uint64(i) + 2, epoch: 1, body: fmt.Appendf(nil, "command %d", i)}
		group.Go(func() {
			t.resolve(log, r)
			<-free
		})
	}
	group.Wait()
	c.etcds[0].signal(syscall.SIGCONT)
	for _, client := range clients {
		_ = client.Close()
	}
	there, twice, err := c.find()
	return fmt.Sprintf("%d | %d | %d | %d | %.0f | %d | %d | %d", t.attempts, t.unknown, t.already, t.gaps, ms(t.slowest), there, appends-there+t.failed, twice), err
}

// resolve attempts an append until its outcome is known.
func (t *tally) resolve(log *etcdLog, r record) {
	begin, unknown := time.Now(), 0
	for {
		err := log.append(context.Background(), r)
		t.mu.Lock()
		t.attempts++
		t.slowest = max(t.slowest, time.Since(begin))
		switch {
		case err == nil:
			t.mu.Unlock()
			return
		case errors.Is(err, errThere):
			t.already++
			t.mu.Unlock()
			return
		case errors.Is(err, errDeposed):
			t.failed++
			t.mu.Unlock()
			return
		case errors.Is(err, errGap):
			t.gaps++
		default:
			unknown++
			t.unknown++
		}
		t.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// find reads the log at a member that had no fault, and counts its commands and their repetitions.
func (c *cluster) find() (there, twice int, err error) {
	client, err := etcd.New(etcd.Config{Endpoints: []string{c.etcds[1].client}, DialTimeout: 5 * time.Second, Logger: silent})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = client.Close() }()
	records, err := readAll(client)
	if err != nil {
		return 0, 0, err
	}
	seen := map[string]bool{}
	for _, r := range records[1:] {
		if seen[string(r.body)] {
			twice++
		}
		seen[string(r.body)] = true
	}
	return len(seen), twice, nil
}
