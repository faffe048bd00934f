package program_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/lock"
	"github.com/locket-service/locket/models"
	"github.com/locket-service/locket/tests/harness"
)

// TestProcessors: a server uses one processor while nobody asks for anything, all of them while many calls or commands of a session come at the same
// time, however rarely, and one again afterwards.
func TestProcessors(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, "raft:"+filepath.Join(t.TempDir(), "data"))
	client := server.Client(t)
	session, err := lock.NewSession([]string{server.Address()})
	harness.Must(t, err)
	await := func(what string, one bool) {
		t.Helper()
		harness.Until(t, what, func() bool {
			return strings.Contains(harness.Scrape(t, server), "\ngo_sched_gomaxprocs_threads 1\n") == one
		})
	}
	for name, ask := range map[string]func(key string) error{
		"calls": func(key string) error {
			_, err := client.Lock(t.Context(), &models.LockRequest{Resource: &models.Resource{Key: key, Owner: "me", TypeCode: models.TypeCode_LOCK}, TtlInSeconds: 60})
			return err
		},
		"commands of a session": func(key string) error {
			_, lockErr := session.Lock(t.Context(), key+" of the session")
			_, err := session.Unlock(t.Context(), key+" of the session")
			return errors.Join(lockErr, err)
		},
	} {
		await("one processor before "+name, true)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			harness.Repeat(stop, 100*time.Millisecond, func() { // that often takes little of a processor
				var all sync.WaitGroup
				for n := range 64 {
					all.Go(func() {
						if err := ask(fmt.Sprint("key ", n)); err != nil && status.Code(err) != codes.Unavailable { // too much to do is no fault
							t.Error(err)
						}
					})
				}
				all.Wait()
			})
		}()
		await("all processors for "+name, runtime.NumCPU() == 1)
		close(stop)
		<-stopped
	}
	await("one processor afterwards", true)
	harness.Must(t, session.Close(t.Context()))
}
