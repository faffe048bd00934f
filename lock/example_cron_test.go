package lock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Several processes wake for the same job, and one of them does it.
func Example_cron() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)

	wake := func(scheduled time.Time) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // until then a server must be there
		defer cancel()
		err := runOnce(ctx, client, "report", scheduled, func() error {
			fmt.Println("the report of", scheduled.Format("15:04"))
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	six := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	var processes sync.WaitGroup
	for range 5 {
		processes.Go(func() { wake(six) })
	}
	processes.Wait()
	wake(six) // a process with a slow clock: the report was made long ago
	wake(six.Add(time.Hour))

	// Output:
	// the report of 06:00
	// the report of 07:00
}

// runOnce does a scheduled job unless another process does it or has done it. All of them pass the scheduled time,
// whatever their clocks say.
//
// After the job the lock is not released: a process with a slow clock would find it free and do the job again. The lock
// expires after an hour, when the slowest clock is long past. The price: if a process dies halfway, the job is not
// repeated. A job that fails releases the lock, so that it can be tried again.
func runOnce(ctx context.Context, client models.LocketClient, job string, scheduled time.Time, do func() error) error {
	mine := &models.Resource{
		Key:   job + "/" + scheduled.UTC().Format(time.RFC3339),
		Owner: rand.Text(), // unique: a second request by the same owner would renew the lock
	}
	_, err := client.Lock(ctx, &models.LockRequest{Resource: mine, TtlInSeconds: 3600}, grpc.WaitForReady(true))
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	if err == nil {
		err = do()
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, releaseErr := client.Release(ctx, &models.ReleaseRequest{Resource: mine})
	return errors.Join(err, releaseErr)
}
