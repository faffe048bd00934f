package lock_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/locket-service/locket/fixtures"
)

// TestMain looks for leaked goroutines. The goroutine of fixtures.keepThread lasts as long as the process, because fixtures starts
// child processes from its thread.
func TestMain(m *testing.M) {
	if plan := os.Getenv(envMember); plan != "" {
		os.Exit(beMember(plan))
	}
	flag.Parse()
	err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))) // tests of processes wait most of the time
	orPanic(err)
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreTopFunction("github.com/locket-service/locket/fixtures.keepThread"))
}

// tests runs all tests, and then ends the servers that they share.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer fixtures.Shutdown()
	return t.M.Run()
}
