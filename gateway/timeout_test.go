package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tedsuo/ifrit"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/gateway"
	"github.com/locket-service/locket/internal/doors/guard"
	"github.com/locket-service/locket/internal/service/watch"
)

// bubble runs a test with a server and a fake clock. dial opens a connection.
func bubble(t *testing.T, test func(t *testing.T, dial func() net.Conn), changes ...func(*gateway.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry, listener := prometheus.NewRegistry(), fixtures.NewPipes()
		conn, _ := service(t, registry)
		config := gateway.Config{
			Listener: listener, Service: conn, Metrics: registry,
			ShutdownTimeout: shutdownTimeout, Log: slog.New(slog.DiscardHandler),
		}
		for _, change := range changes {
			change(&config)
		}
		process := ifrit.Invoke(gateway.New(config))
		var conns []net.Conn
		defer func() {
			for _, conn := range conns {
				_ = conn.Close()
			}
			process.Signal(os.Interrupt)
			must(t, <-process.Wait())
		}()
		test(t, func() net.Conn {
			conn, err := listener.Dial(t.Context(), "", "")
			must(t, err)
			conns = append(conns, conn)
			return conn
		})
	})
}

// closed returns the time until the server has closed a connection.
func closed(conn net.Conn) time.Duration {
	begin := time.Now()
	_, _ = io.Copy(io.Discard, conn)
	return time.Since(begin) // real time: of a bubble
}

// send writes a request and returns the status of its answer.
func send(t *testing.T, conn net.Conn, method, path, body string, headers ...string) int {
	t.Helper()
	lines := append(headers, fmt.Sprintf("Content-Length: %d", len(body)), "Host: x", "Content-Type: application/json")
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\n\r\n%s", method, path, strings.Join(lines, "\r\n"), body)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode
}

// TestLongWait: a wait may last several minutes, though other requests may last one minute at most. The connection can be used after it.
func TestLongWait(t *testing.T) {
	bubble(t, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		send(t, conn, "POST", "/v1/claims", `{"resource": "r", "ttl": 86400}`)
		begin := time.Now()
		if code := send(t, conn, "POST", "/v1/claims", `{"resource": "r", "ttl": 60, "id": "w"}`, "Prefer: wait=300"); code != 202 || time.Since(begin) != 5*time.Minute {
			t.Errorf("%d after %s", code, time.Since(begin))
		}
		begin = time.Now()
		if code := send(t, conn, "PATCH", "/v1/claims/w", `{"status": "active"}`, "Prefer: wait=90"); code != 409 || time.Since(begin) != 90*time.Second {
			t.Errorf("%d after %s", code, time.Since(begin))
		}
		if code := send(t, conn, "GET", "/v1/claims/w", ""); code != 200 {
			t.Errorf("afterwards: %d", code)
		}
	})
}

// overTLS runs a test with a server and a fake clock, and a client that has one version of HTTP.
func overTLS(t *testing.T, version int, test func(t *testing.T, c *http.Client), changes ...func(*gateway.Config)) {
	t.Helper()
	ca, now := fixtures.NewCA(t), time.Now() // the clock of a bubble is behind the certificates' clock
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, "server"))
	must(t, err)
	changes = append(slices.Clip(changes), func(c *gateway.Config) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	})
	t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
		bubble(t, func(t *testing.T, dial func() net.Conn) {
			transport := &http.Transport{
				Protocols:       new(http.Protocols),
				HTTP2:           &http.HTTP2Config{StrictMaxConcurrentRequests: true}, // one connection
				TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Time: func() time.Time { return now }},
				DialContext:     func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
			}
			transport.Protocols.SetHTTP1(version == 1)
			transport.Protocols.SetHTTP2(version == 2)
			defer transport.CloseIdleConnections()
			test(t, &http.Client{Transport: transport})
		}, changes...)
	})
}

// TestIdleEvents: a stream of events continues while nothing happens, over HTTP/1.1 and over HTTP/2.
func TestIdleEvents(t *testing.T) {
	for _, version := range []int{1, 2} {
		overTLS(t, version, func(t *testing.T, c *http.Client) {
			e := listen(t, c, "https://127.0.0.1/v1/events")
			e.wants("synced", "{}")
			if e.resp.ProtoMajor != version {
				t.Errorf("it is %s", e.resp.Proto)
			}
			made := make(chan answer, 1)
			go func() {
				time.Sleep(10 * time.Minute)
				made <- do(t, c, "POST", "https://127.0.0.1/v1/claims/", claimOfR)
			}()
			e.wants("transition", `"resource":"r"`)
			(<-made).says(t, 201, "")
			e.stop()
		})
	}
}

// slowStreams is a connection with slow streams, as when a watch matches few of many claims: the first takes 14
// seconds to begin, each other one two minutes.
type slowStreams struct {
	grpc.ClientConnInterface
	started *atomic.Bool
}

func (s slowStreams) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if s.started.Swap(true) {
		time.Sleep(2 * time.Minute)
	} else {
		time.Sleep(14 * time.Second)
	}
	return s.ClientConnInterface.NewStream(ctx, desc, method, options...)
}

// TestSlowEvents: a stream of events begins in time for a proxy even if its first event is late, and the watch restarts
// because the cursor was too old.
func TestSlowEvents(t *testing.T) {
	for _, version := range []int{1, 2} {
		overTLS(t, version, func(t *testing.T, c *http.Client) {
			began := time.Now()
			e := listen(t, c, "https://127.0.0.1/v1/events", "Last-Event-ID: "+watch.Cursor{}.String())
			if took := time.Since(began); took > 16*time.Second {
				t.Errorf("the answer began after %s", took)
			}
			e.wants("reset", "{}")
			e.wants("synced", "{}")
			e.stop()
		}, func(c *gateway.Config) { c.Service = slowStreams{c.Service, new(atomic.Bool)} })
	}
}

// TestManyWaits: calls that wait over one connection of HTTP/2 leave room for others.
func TestManyWaits(t *testing.T) {
	const waits, claims = 300, "https://127.0.0.1/v1/claims/"
	overTLS(t, 2, func(t *testing.T, c *http.Client) {
		do(t, c, "POST", claims, `{"resource": "r", "ttl": 3600, "id": "holder"}`).says(t, 201, "")
		var all sync.WaitGroup
		for i := range waits {
			all.Go(func() {
				do(t, c, "POST", claims, fmt.Sprintf(`{"resource": "r", "ttl": 60, "id": "w%d"}`, i), "Prefer: wait=300").says(t, 202, "")
			})
		}
		time.Sleep(time.Second)
		begin := time.Now()
		do(t, c, "PATCH", claims+"holder/", `{"ttl": 3600}`).says(t, 200, "")
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("a renewal took %s beside %d calls that wait", took, waits)
		}
		all.Wait()
	})
}

// TestUnfinishedBodies: a request of an unknown caller whose body does not come is cut off after a while, or earlier if there are too many of
// them. Complete requests, and requests of known callers, are not affected.
func TestUnfinishedBodies(t *testing.T) {
	known := func(ctx context.Context) bool {
		return slices.Contains(metadata.ValueFromIncomingContext(ctx, "authorization"), "alice") ||
			slices.Contains(metadata.ValueFromIncomingContext(ctx, "x-user"), "alice")
	}
	arrivals := guard.NewArrivals(known, prometheus.NewRegistry())
	bubble(t, func(t *testing.T, dial func() net.Conn) {
		begin := func(header string) <-chan string {
			conn := dial()
			_, err := fmt.Fprintf(conn, "POST /v1/claims/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: 100\r\n\r\n{", header)
			must(t, err)
			answered := make(chan string, 1)
			go func() {
				answer, _ := io.ReadAll(conn)
				answered <- string(answer)
			}()
			synctest.Wait()
			return answered
		}
		started := time.Now()
		authorized, named := begin("Authorization: alice\r\n"), begin("X-User: alice\r\n")
		const more = 20
		var requests []<-chan string
		for range guard.MaxArrivals + more {
			requests = append(requests, begin(""))
		}
		ended := func() (n int) {
			synctest.Wait()
			for _, request := range requests {
				n += len(request)
			}
			return n
		}
		if n := ended(); n != more {
			t.Errorf("%d unfinished bodies were cut off at once, want %d", n, more)
		}
		conn := dial()
		for range 2 { // the connection can be used again
			if code := send(t, conn, "POST", "/v1/claims/", `{"resource": "r", "ttl": 60}`); code != 201 && code != 202 {
				t.Errorf("a whole request: %d", code)
			}
		}
		time.Sleep(guard.ArrivalTime)
		if n := ended(); n != len(requests) {
			t.Errorf("%d of %d were cut off in time", n, len(requests))
		}
		if answer := <-requests[0]; !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
			t.Errorf("the answer is %q", answer)
		}
		if code := send(t, conn, "GET", "/v1/claims/", ""); code != 200 {
			t.Errorf("later on the connection: %d", code)
		}
		for _, request := range []<-chan string{authorized, named} {
			if <-request; time.Since(started) < 25*time.Second {
				t.Errorf("a known caller was cut off after %s", time.Since(started))
			}
		}
	}, func(c *gateway.Config) { c.Arrive, c.Headers = arrivals.Begin, []string{"authorization", "x-user"} })
}

// TestSlowClients: a client that sends slowly, does not read its answer, or sends nothing more is cut off.
func TestSlowClients(t *testing.T) {
	for name, c := range map[string]struct {
		sends string
		limit time.Duration
	}{
		"nothing":       {"", 5 * time.Second},
		"half a header": {"GET /v1/claims/ HTTP/1.1\r\nHost: x\r\n", 5 * time.Second},
		"half a body":   {"POST /v1/claims/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", 30 * time.Second},
		"no more":       {"GET /v1/claims/ HTTP/1.1\r\nHost: x\r\n\r\n", 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func() net.Conn) {
				conn := dial()
				_, err := io.WriteString(conn, c.sends)
				must(t, err)
				if took := closed(conn); took < c.limit || took > c.limit+2*time.Second {
					t.Errorf("closed after %s, want %s", took, c.limit)
				}
			})
		})
	}
	t.Run("takes no answer", func(t *testing.T) {
		bubble(t, func(t *testing.T, dial func() net.Conn) {
			conn := dial()
			_, err := io.WriteString(conn, "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
			must(t, err)
			time.Sleep(90 * time.Second)
			content, _ := io.ReadAll(conn) // the rest of the buffers, and the end
			if len(content) > 10<<10 {
				t.Errorf("after 90 s it still got %d bytes", len(content))
			}
		})
	})
}
