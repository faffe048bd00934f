package lock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/locket-service/locket/lock"
)

// A client waits in the queue, works, and releases.
func ExampleClient() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()

	client, err := lock.NewClient([]string{address}, lock.WithTTL(15*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	held, err := client.Acquire(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", held.Token() > 0, held.Err())

	_, err = client.TryAcquire(ctx, "nightly") // a second goroutine
	fmt.Println("refused:", err != nil)

	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(held.Err())

	// Output:
	// held: true <nil>
	// refused: true
	// the lock was released
}

// A function runs under a lock. Its context ends when the lock is lost.
func ExampleClient_Do() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(context.Background(), "nightly", func(ctx context.Context, token uint64) error {
		fmt.Println("works with a token:", token > 0)
		return ctx.Err() // pass ctx on to whatever takes its time, and token to whatever writes
	})
	fmt.Println(err)

	// Output:
	// works with a token: true
	// <nil>
}

// A mutex works between the goroutines of one process and between processes.
func ExampleMutex() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	session, err := lock.NewSession([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer session.Close(ctx)

	mutex := lock.NewMutex(session, "counter", lock.WithUnexpectedUnlock(func(s lock.Status) {
		fmt.Println("stop:", s.Cause)
	}))
	n := 0
	done := make(chan struct{})
	for range 10 {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := mutex.Lock(ctx); err != nil {
				log.Println(err)
				return
			}
			n++
			if err := mutex.Unlock(); err != nil {
				log.Println(err)
			}
		}()
	}
	for range 10 {
		<-done
	}
	fmt.Println(n)

	// Output: 10
}

// One lock service for one process: commands that do not wait, and a listener.
func ExampleSession() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	ctx := context.Background()
	open := func(name string) *lock.Session {
		session, err := lock.NewSession([]string{address}, lock.WithOwner(name))
		if err != nil {
			log.Fatal(err)
		}
		return session
	}
	first, second := open("first"), open("second")
	defer second.Close(ctx)
	changes := make(chan lock.Status, 10)
	second.Listen(func(s lock.Status) { changes <- s })

	if _, err := first.Lock(ctx, "a"); err != nil {
		log.Fatal(err)
	}
	tried, err := second.TryLock(ctx, "a")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tried.Current, "held by", tried.Holder)
	if _, err := second.Lock(ctx, "a"); err != nil {
		log.Fatal(err)
	}
	if err := first.Close(ctx); err != nil { // frees all that it holds
		log.Fatal(err)
	}
	for range 2 {
		s := <-changes
		fmt.Println(s.Resource, s.Previous, "->", s.Current)
	}

	// Output:
	// NONE held by first
	// a NONE -> WAITING
	// a WAITING -> HOLDING
}
