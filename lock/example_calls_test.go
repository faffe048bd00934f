package lock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// A program may make the calls of a claim itself. It must then renew the claim in time.
func Example_calls() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)
	ctx := context.Background()
	ttl := 60.0 // seconds
	show := func(claim *models.Claim, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(claim.GetStatus())
	}

	// The id makes the request safe to repeat.
	show(client.CreateClaim(ctx, &models.CreateClaimRequest{Resource: "nightly", Owner: "me", Ttl: &ttl, Id: "nightly-1"}))
	show(client.AwaitClaim(ctx, &models.AwaitClaimRequest{Id: "nightly-1"}))              // until it is active
	show(client.UpdateClaim(ctx, &models.UpdateClaimRequest{Id: "nightly-1", Ttl: &ttl})) // renew
	show(client.EndClaim(ctx, &models.EndClaimRequest{Id: "nightly-1"}))                  // release

	// Output:
	// STATUS_ACTIVE
	// STATUS_ACTIVE
	// STATUS_ACTIVE
	// STATUS_RELEASED
}
