package main

import (
	"context"
	"fmt"
	"time"

	"github.com/locket-service/locket/lock"
)

// loadFirst is the role of short programs, one after the other: each makes a client, takes one lock, and ends.
func loadFirst(args []string) error {
	f, err := parseLoad(args)
	if err != nil {
		return err
	}
	return f.drive([]worker{f.firstLocks})
}

// firstLocks is a worker; an operation lasts from a new client to its first lock.
func (f loadFlags) firstLocks(end time.Time, took *histogram) error {
	for i := 0; i == 0 || time.Now().Before(end); i++ {
		begin := time.Now()
		client, err := lock.NewClient([]string{f.addresses.of(0)})
		if err != nil {
			return err
		}
		_, err = client.TryAcquire(context.Background(), fmt.Sprintf("first/%d", i%names))
		took.add(time.Since(begin))
		if err != nil {
			return err
		}
		if err := client.Close(); err != nil {
			return err
		}
	}
	return nil
}
