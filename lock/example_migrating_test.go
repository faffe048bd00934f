package lock_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// A service that came from another lock client: docs/migrating.md.
func Example_migrating() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)

	bbs := ifrit.Invoke(newBBSLock(slog.New(slog.DiscardHandler), client, "https://bbs.internal"))
	found, err := client.Fetch(context.Background(), &models.FetchRequest{Key: "bbs"})
	fmt.Println(found.GetResource().GetValue(), found.GetResource().GetTypeCode(), err)
	bbs.Signal(os.Interrupt)
	fmt.Println(<-bbs.Wait())

	accounts, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer accounts.Close()
	for range 2 {
		err := withLock(context.Background(), accounts, "accounts", func(_ context.Context, token uint64) error {
			fmt.Println("working, with a token:", token > 0)
			return nil
		})
		fmt.Println(err)
	}

	// Output:
	// https://bbs.internal LOCK <nil>
	// <nil>
	// working, with a token: true
	// <nil>
	// working, with a token: true
	// <nil>
}

// newBBSLock is the runner of a service that came from Cloud Foundry's package lock.
func newBBSLock(logger *slog.Logger, client models.LocketClient, value string) ifrit.Runner {
	bbs := &models.Resource{Key: "bbs", Value: value}
	return lock.NewLockRunner(client, bbs, 15*time.Second, 5*time.Second, lock.WithLogger(logger))
}

// withLock waits in the queue, works, and releases. The context of the work ends when the lock
// is lost, and the loss is part of the error.
func withLock(ctx context.Context, client *lock.Client, key string, work func(ctx context.Context, token uint64) error) error {
	return client.Do(ctx, key, work)
}
