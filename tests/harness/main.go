package harness

import (
	"flag"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
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
	hearSignals()
	m.Run()
	fixtures.Shutdown()
}

// hearSignals makes the programs that the tests start receive all signals. If the test was started by nohup, or in the
// background of a script, it ignores some, and programs would inherit that.
func hearSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
