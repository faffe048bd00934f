package lock_test

import (
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Several processes run the same program, and one of them works at a time. When that one
// ends, or dies, another takes over.
func ExampleNewLockRunner() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)

	first := ifrit.Invoke(newScheduler(client, "host-1"))
	second := ifrit.Background(newScheduler(client, "host-2"))
	time.Sleep(100 * time.Millisecond) // it waits

	first.Signal(os.Interrupt) // somebody stops it
	if err := <-first.Wait(); err != nil {
		log.Fatal(err)
	}
	<-second.Ready() // the other one has taken over

	second.Signal(os.Interrupt)
	if err := <-second.Wait(); err != nil {
		log.Fatal(err)
	}

	// Output:
	// host-1 works
	// host-1 stops
	// host-2 works
	// host-2 stops
}

// newScheduler returns what a process runs, as ifrit.Invoke(sigmon.New(newScheduler(…))) in
// its main function. Each process needs an owner of its own.
//
// The group starts its members in order and stops them in reverse: the work begins when the
// lock is held, and ends before the lock is released. If the lock is lost, the group stops
// the work and ends with an error; whoever watches over the process starts it again.
func newScheduler(client models.LocketClient, owner string) ifrit.Runner {
	resource := &models.Resource{Key: "scheduler", Owner: owner}
	return grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "lock", Runner: lock.NewLockRunner(client, resource, lock.DefaultTTL, time.Second)},
		{Name: "work", Runner: ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
			fmt.Println(owner, "works")
			close(ready)
			<-signals
			fmt.Println(owner, "stops")
			return nil
		})},
	})
}
