package locktrace_test

import (
	"log"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/locktrace"
	"github.com/locket-service/locket/models"
)

func ExampleObserver() {
	addresses := []string{"localhost:8891"}
	client, err := lock.NewClient(addresses, lock.WithObserver(locktrace.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	conn, err := lock.Dial(addresses, locktrace.WithTraces()) // for the runners of calls
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	claim := &models.CreateClaimRequest{Resource: "nightly"}
	_ = lock.NewClaimRunner(models.NewLocketClient(conn), claim, lock.WithObserver(locktrace.Observer()))
	// Output:
}
