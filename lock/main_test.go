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

// TestMain looks for goroutines that were left. The one that keepThread runs on stays with
// its process: fixtures starts children from it.
func TestMain(m *testing.M) {
	if plan := os.Getenv(envMember); plan != "" {
		os.Exit(beMember(plan))
	}
	flag.Parse()
	err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))) // tests of processes wait, most of the time
	orPanic(err)
	goleak.VerifyTestMain(tests{m}, goleak.IgnoreTopFunction("github.com/locket-service/locket/fixtures.keepThread"))
}

// tests are all tests, and after them the end of the servers that they had in common.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer fixtures.Shutdown()
	return t.M.Run()
}
