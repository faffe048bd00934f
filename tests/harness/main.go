package harness

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// parallel is the number of tests that run at the same time for each processor, unless the command line sets it. Most of the time they wait
// for processes.
const parallel = 3

// Run runs the tests of a package, and removes what fixtures have left.
func Run(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(parallel*runtime.GOMAXPROCS(0))); err != nil {
			panic(err)
		}
	}
	m.Run()
	fixtures.Shutdown()
}
