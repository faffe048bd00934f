package robustness_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// disturber kills and stops servers, and disturbs the connections that lead through proxies.
type disturber struct {
	t       *testing.T
	servers []*fixtures.Locket
	proxies []*fixtures.Proxy
}

// disturb disturbs some server or connection in each round, and leaves it working before it calls after.
func (d *disturber) disturb(rounds int, after func()) {
	d.t.Helper()
	for round := range rounds {
		harness.Think(time.Second)
		server, proxy := d.servers[rand.IntN(len(d.servers))], d.proxies[rand.IntN(len(d.proxies))]
		switch round % 5 {
		case 0:
			server.Kill()
			harness.Think(time.Second)
			harness.Must(d.t, server.Start())
		case 1:
			harness.Must(d.t, server.Pause())
			d.wait()
			harness.Must(d.t, server.Resume())
		case 2:
			proxy.Cut()
			d.wait()
			proxy.Restore()
		case 3:
			proxy.Hang()
			d.wait()
			proxy.Restore()
		case 4:
			proxy.Silence()
			d.wait()
			proxy.Cut()
			proxy.Restore()
		}
		after()
	}
}

// wait waits long enough for some leases of leaseTTL to end, and not for others.
func (d *disturber) wait() { harness.Think(3 * leaseTTL / 2) }
