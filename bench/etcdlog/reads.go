package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

const (
	manyRecords = 100_000
	manyBytes   = 300
)

// reads measures a barrier at a follower of etcd, and how long a server takes that lacks 100,000 records.
func reads(l *lab) error {
	fmt.Println("| etcd | barrier at a follower, p50, ms | p99, ms | barrier of a server that lacks 100,000 records, ms | reading them, s | a record at a follower after the append began, p50, p99 | deletion of half at once: ms, slowest append | of half in steps of 1,000 | compaction |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | --- | --- | --- | --- |")
	for _, version := range l.versions() {
		row, err := l.read(version)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %s |\n", version, row)
	}
	return nil
}

func (l *lab) read(version string) (string, error) {
	c, err := l.newCluster(3, tuning{100, 1000})
	if err != nil {
		return "", err
	}
	defer c.stop()
	if err := errors.Join(c.startEtcds(l.program("etcd-"+version)), c.lead("a")); err != nil {
		return "", err
	}
	clients, err := dialEach([]string{c.etcds[1].client})
	if err != nil {
		return "", err
	}
	defer func() { _ = clients[0].Close() }()
	log := newEtcdLog(clients, "/locket/", 10*time.Second)
	ctx := context.Background()
	if err := fillLog(ctx, log); err != nil {
		return "", err
	}
	var took []time.Duration
	for range 1000 {
		begin := time.Now()
		if _, err := log.barrier(ctx, manyRecords); err != nil {
			return "", err
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	begin := time.Now()
	last, err := log.barrier(ctx, 0)
	if err != nil || last != manyRecords {
		return "", fmt.Errorf("the last record is %d: %w", last, err)
	}
	lacking := time.Since(begin)
	begin = time.Now()
	read, cancel := context.WithCancel(ctx)
	defer cancel()
	log.follow(read, func(r record) {
		if r.index == manyRecords {
			cancel()
		}
	}, func(err error) { fmt.Println(err) })
	followed := time.Since(begin)
	seen, err := c.seen(ctx, log)
	if err != nil {
		return "", err
	}
	trimmed, err := trim(ctx, log)
	return fmt.Sprintf("%.2f | %.2f | %.1f | %.2f | %s | %s", ms(took[500]), ms(took[990]), ms(lacking), followed.Seconds(), seen, trimmed), err
}

// seen measures the time from the beginning of an append at etcd's leader until a watch at another member has the record.
func (c *cluster) seen(ctx context.Context, log *etcdLog) (string, error) {
	leader, err := dialEach([]string{c.etcds[0].client})
	if err != nil {
		return "", err
	}
	defer func() { _ = leader[0].Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := log.clients[0].Watch(ctx, log.prefix+"seen/", etcd.WithPrefix())
	var took []time.Duration
	for i := range 500 {
		begin := time.Now()
		if _, err := leader[0].Put(ctx, fmt.Sprintf("%sseen/%d", log.prefix, i), string(make([]byte, manyBytes))); err != nil {
			return "", err
		}
		if response := <-events; response.Err() != nil {
			return "", response.Err()
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return fmt.Sprintf("%.2f, %.2f", ms(took[250]), ms(took[495])), nil
}

// trim deletes the records, half of them at once and half in steps, and compacts. It measures the slowest append of each phase.
func trim(ctx context.Context, log *etcdLog) (string, error) {
	slowest := make(chan time.Duration)
	next := uint64(manyRecords + 1)
	during := func(work func() error) (string, error) {
		ended := make(chan struct{})
		go func() {
			var most time.Duration
			for running := true; running; next++ {
				begin := time.Now()
				_, _ = log.clients[0].Put(ctx, log.key(next), "x")
				most = max(most, time.Since(begin))
				select {
				case <-ended:
					running = false
				default:
				}
			}
			slowest <- most
		}()
		begin := time.Now()
		err := work()
		took := time.Since(begin)
		close(ended)
		return fmt.Sprintf("%.0f, %.0f", ms(took), ms(<-slowest)), err
	}
	revision := int64(0)
	remove := func(from, to uint64) error {
		deleted, err := log.clients[0].Delete(ctx, log.key(from), etcd.WithRange(log.key(to)))
		if err == nil {
			revision = deleted.Header.GetRevision()
		}
		return err
	}
	atOnce, err := during(func() error { return remove(1, manyRecords/2) })
	if err != nil {
		return "", err
	}
	inSteps, err := during(func() error {
		for from := uint64(manyRecords / 2); from < manyRecords; from += 1000 {
			if err := remove(from, from+1000); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	compaction, err := during(func() error {
		_, err := log.clients[0].Compact(ctx, revision, etcd.WithCompactPhysical())
		return err
	})
	return atOnce + " | " + inSteps + " | " + compaction, err
}

// fillLog puts many records in transactions of 100.
func fillLog(ctx context.Context, log *etcdLog) error {
	for index := uint64(1); index <= manyRecords; {
		var puts []etcd.Op
		for range 100 {
			puts = append(puts, etcd.OpPut(log.key(index), record{index: index, epoch: 1, body: make([]byte, manyBytes)}.encode()))
			index++
		}
		if _, err := log.clients[0].Txn(ctx).Then(puts...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
