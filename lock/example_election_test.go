package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/locket-service/locket/lock"
)

// Several processes campaign, one leads, and anybody may see who. ExampleNewLockRunner does the same
// with a member of an ifrit group.
func ExampleElection() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	newClient := func(owner string) *lock.Client {
		client, err := lock.NewClient([]string{address}, lock.WithOwner(owner))
		if err != nil {
			log.Fatal(err)
		}
		return client
	}
	a, b := newClient("a"), newClient("b")
	defer a.Close()
	defer b.Close()
	ctx := context.Background()

	first := lock.NewElection(a, "scheduler")
	leading, err := first.Campaign(ctx, "10.0.0.1:80")
	if err != nil {
		log.Fatal(err)
	}
	go func() { // another process waits in the queue
		second := lock.NewElection(b, "scheduler")
		if _, err := second.Campaign(ctx, "10.0.0.2:80"); err != nil {
			log.Println(err)
		}
	}()

	for leader, err := range first.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if leader.Owner == "" {
			continue // nobody, for a moment
		}
		fmt.Println(leader.Owner, "leads at", leader.Value)
		if leader.Owner == "b" {
			break
		}
		if err := first.Resign(ctx); err != nil { // ends leading.Context()
			log.Fatal(err)
		}
		<-leading.Done()
	}

	// Output:
	// a leads at 10.0.0.1:80
	// b leads at 10.0.0.2:80
}
