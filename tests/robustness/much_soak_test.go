//go:build soak

package robustness_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestSoakSessionWithMuch: sessions that hold very many resources are ended in each way.
func TestSoakSessionWithMuch(t *testing.T) {
	small := fixtures.NewMariaDB(t, fixtures.WithServerArgs("--max-allowed-packet=1M"))
	databases := harness.Engines()
	databases["mysql with small packets"] = func(t *testing.T) string { return "mysql:" + small.CreateDatabase(t) }
	for name, database := range databases {
		for _, m := range []much{{locks: 4200, value: 4 << 10}, {locks: 6000, value: 64 << 10}} {
			for how, end := range endings {
				t.Run(fmt.Sprint(name, "/", m, "/", how), func(t *testing.T) {
					server := fixtures.StartLocket(t, database(t))
					stop := besideOthers(t, server)
					m.isEnded(t, server, func(t *testing.T, server *fixtures.Locket, s *harness.Session) {
						t.Cleanup(watchMemory(t, server)) // the server still runs then
						end(t, server, s)
					})
					stop()
				})
			}
		}
	}
}

// besideOthers locks at a server until stop, which checks the longest wait: others wait for one step of an end at most.
func besideOthers(t *testing.T, server *fixtures.Locket) (stop func()) {
	t.Helper()
	client, stopped := server.Client(t), make(chan struct{})
	var callers sync.WaitGroup
	var mu sync.Mutex
	var calls int
	var longest time.Duration
	for i := range 8 {
		resource := &models.Resource{Key: fmt.Sprint("other", i), Owner: "o", TypeCode: models.TypeCode_LOCK}
		callers.Go(func() {
			for {
				begin := time.Now()
				_, err := client.Lock(t.Context(), &models.LockRequest{Resource: resource, TtlInSeconds: 60})
				took := time.Since(begin)
				mu.Lock()
				calls, longest = calls+1, max(longest, took)
				mu.Unlock()
				if err != nil {
					t.Errorf("beside it: %v", err)
					return
				}
				select {
				case <-stopped:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	return func() {
		close(stopped)
		callers.Wait()
		harness.AtMost(t, fmt.Sprintf("the longest of %d calls beside it", calls), longest, othersWait)
	}
}

// endMemory is how much memory the end of a session may take, in MiB. Where the values are in memory most of that is garbage, up to half of
// the memory in use.
const endMemory = 400

// watchMemory watches the memory of a server until stop, which checks how much more it took than now.
func watchMemory(t *testing.T, server *fixtures.Locket) (stop func()) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/", server.PID())
	harness.Must(t, os.WriteFile(folder+"clear_refs", []byte("5"), 0)) // VmHWM is the maximum since then
	before := mebibytes(t, folder+"status", "VmRSS")
	return func() {
		t.Helper()
		most := mebibytes(t, folder+"status", "VmHWM")
		t.Logf("the server used %d MiB before the end of the session, and then %d MiB at most", before, most)
		if most-before > endMemory {
			t.Errorf("the end took %d MiB", most-before)
		}
	}
}

// mebibytes returns a value of /proc/PID/status.
func mebibytes(t *testing.T, file, name string) (n int) {
	t.Helper()
	status, err := os.ReadFile(file)
	harness.Must(t, err)
	_, after, _ := strings.Cut(string(status), name+":")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("%s of %s: %v", name, file, err)
	}
	return n >> 10
}
