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

// Several processes run the same program, and one of them works at a time. When it ends or dies, another takes over.
func ExampleNewLockRunner() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)

	first := ifrit.Invoke(newScheduler(client, "first"))
	second := ifrit.Background(newScheduler(client, "second"))

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
	// first works
	// first stops
	// second works
	// second stops
}

// newScheduler returns the runner of a process; main calls ifrit.Invoke(sigmon.New(newScheduler(…))). Without an owner
// each runner has a unique one, so that two processes never hold the lock both.
//
// The group starts its members in order and stops them in reverse: the work begins when the lock is held, and ends
// before the lock is released. If the lock is lost, the group stops the work and ends with an error; a supervisor
// starts the process again.
func newScheduler(client models.LocketClient, name string) ifrit.Runner {
	resource := &models.Resource{Key: "scheduler"}
	return grouper.NewOrdered(os.Interrupt, grouper.Members{
		{Name: "lock", Runner: lock.NewLockRunner(client, resource, lock.DefaultTTL, time.Second)},
		{Name: "work", Runner: ifrit.RunFunc(func(signals <-chan os.Signal, ready chan<- struct{}) error {
			fmt.Println(name, "works")
			close(ready)
			<-signals
			fmt.Println(name, "stops")
			return nil
		})},
	})
}
