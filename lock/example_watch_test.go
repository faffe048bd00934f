package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// A watch reports the live claims, then each change.
func ExampleWatch() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	job, err := client.Acquire(ctx, "jobs/1")
	if err != nil {
		log.Fatal(err)
	}

	for event, err := range lock.Watch(ctx, models.NewLocketClient(conn), &models.WatchRequest{Prefix: "jobs/"}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case event.Claim != nil:
			fmt.Println(event.Claim.GetResource(), event.Claim.GetStatus())
		case event.Synced:
			go func() { _ = job.Release(ctx) }()
		case event.Transition != nil:
			fmt.Println(event.Transition.GetClaim().GetResource(), event.Transition.GetClaim().GetStatus())
			return
		}
	}

	// Output:
	// jobs/1 STATUS_ACTIVE
	// jobs/1 STATUS_RELEASED
}

// Presences lists the live instances of a service, and each change of the list.
func ExamplePresences() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	web, err := client.Acquire(ctx, "web/1", lock.WithPresence("10.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}

	instances, err := lock.Presences(ctx, client, "web/")
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		changes, err := instances.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, change := range changes {
			fmt.Println(change.Presence.Value, change.Kind)
		}
		_ = web.Release(ctx)
	}

	// Output:
	// 10.0.0.1:8080 joined
	// 10.0.0.1:8080 left
}
