package lockmetrics_test

import (
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/lock/lockmetrics"
)

func ExampleNew() {
	metrics := lockmetrics.New()
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)
	client, err := lock.NewClient([]string{"localhost:8891"}, lock.WithObserver(metrics.Observer()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	families, err := registry.Gather() // as Prometheus scrapes it
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		fmt.Println(family.GetName())
	}
	// Output:
	// locket_client_held
	// locket_client_renewals_failed_total
	// locket_client_session_reconnects_total
	// locket_client_waits
}
