package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// Runners of a client share its session. A runner is ready when it holds its lock, and exits when the lock is lost.
func ExampleNewSessionRunner() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	runner := lock.NewSessionRunner(client, "scheduler")
	process := ifrit.Invoke(runner) // returns when the lock is held
	_, held := runner.Held()
	fmt.Println("held:", held)

	endSessions(address) // an administrator does this
	err = <-process.Wait()
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))

	// Output:
	// held: true
	// lost: true
}

// endSessions ends all sessions, as `locket reset --all` does.
func endSessions(address string) {
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := models.NewLocketClient(conn).ResetSessions(context.Background(), &models.ResetSessionsRequest{}); err != nil {
		log.Fatal(err)
	}
}

// A job needs two locks, or none.
func ExampleNewJoint() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	client, err := lock.NewClient([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	both := lock.NewJoint(lock.NewSessionRunner(client, "accounts/1"), lock.NewSessionRunner(client, "accounts/2"))
	process := ifrit.Invoke(both)
	tokens, held := both.Held() // in the order of the arguments
	fmt.Println("held:", held, "tokens:", len(tokens))

	process.Signal(os.Interrupt)
	if err := <-process.Wait(); err != nil {
		log.Fatal(err)
	}
	_, held = both.Held()
	fmt.Println("held:", held)

	// Output:
	// held: true tokens: 2
	// held: false
}
