package lock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/tedsuo/ifrit"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
)

// The instances of a service announce their addresses, and clients find the live ones.
func ExampleNewPresenceRunner() {
	address, stopServer := startServer() // yours runs elsewhere
	defer stopServer()
	conn, err := lock.Dial([]string{address})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := models.NewLocketClient(conn)

	one := ifrit.Invoke(announce(client, "web", "10.0.0.1:8080"))
	two := ifrit.Invoke(announce(client, "web", "10.0.0.2:8080"))
	three := ifrit.Invoke(announce(client, "web", "10.0.0.3:8080"))
	printAddresses(client, "web")

	two.Signal(os.Interrupt)
	if err := <-two.Wait(); err != nil {
		log.Fatal(err)
	}
	printAddresses(client, "web")

	for _, instance := range []ifrit.Process{one, three} {
		instance.Signal(os.Interrupt)
		if err := <-instance.Wait(); err != nil {
			log.Fatal(err)
		}
	}
	printAddresses(client, "web")

	// Output:
	// [10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080]
	// [10.0.0.1:8080 10.0.0.3:8080]
	// []
}

// announce returns a runner for an instance. In an ordered group the server starts first, so clients find the instance
// only while it serves. An instance that dies stays on the list until its TTL has passed. The owner is the address, not
// the process, so an instance that restarts there renews the old presence.
func announce(client models.LocketClient, service, address string) ifrit.Runner {
	presence := &models.Resource{Key: service + "/" + address, Owner: address, Value: address}
	return lock.NewPresenceRunner(client, presence, lock.DefaultTTL, lock.DefaultRetryInterval)
}

// addresses returns where the instances of a service are.
func addresses(ctx context.Context, client models.LocketClient, service string) ([]string, error) {
	all, err := client.FetchAll(ctx, &models.FetchAllRequest{TypeCode: models.TypeCode_PRESENCE})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, presence := range all.GetResources() {
		if strings.HasPrefix(presence.GetKey(), service+"/") {
			found = append(found, presence.GetValue())
		}
	}
	slices.Sort(found)
	return found, nil
}

func printAddresses(client models.LocketClient, service string) {
	found, err := addresses(context.Background(), client, service)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found)
}
