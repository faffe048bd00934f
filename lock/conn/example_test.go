package conn_test

import (
	"fmt"

	"github.com/locket-service/locket/lock/conn"
	"github.com/locket-service/locket/models"
)

// A connection to another machine needs TLS, or WithInsecure. Dial does not wait for the servers.
func ExampleDial() {
	servers := []string{"db-1.internal:8891", "db-2.internal:8891"}
	_, err := conn.Dial(servers)
	fmt.Println(err)

	c, err := conn.Dial(servers, conn.WithTLSFiles(conn.Files{})) // the system's authorities, no client certificate
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	client := models.NewLocketClient(c) // then client.CreateClaim(ctx, …)
	fmt.Println(client != nil)

	// Output:
	// the Locket server on db-1.internal is on another machine: give WithTLS, WithTLSFiles or WithCredentials, or WithInsecure() for plain text
	// true
}
