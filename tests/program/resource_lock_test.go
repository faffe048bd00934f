package program_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/locket-service/locket/fixtures"
	"github.com/locket-service/locket/tests/harness"
)

// The examples that lock resources for one writer or many readers; both behave in the same
// way, and see each other's locks.
func TestResourceLockExamples(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	inGo := filepath.Join(t.TempDir(), "resourcelock")
	// Unlike go build, go run keeps the program in Go's cache.
	if output, err := exec.Command("go", "run", "-pgo=off", "-ldflags=-w", "-exec", "cp", "../../examples/go/resourcelock", inGo).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	examples := map[string][]string{
		"go":     {inGo, server.Address()},
		"python": {python, "../../examples/python/resource_lock.py", "http://" + server.HTTPAddress()},
	}
	languages := []string{"go", "python"}
	for i, language := range languages {
		t.Run(language, func(t *testing.T) {
			l := locker{t, examples[language], examples[languages[1-i]]}
			l.readersAndWriters(language + ":db")
			l.lists(language + "-")
		})
	}
}

// locker runs one example, and another one beside it.
type locker struct {
	t           *testing.T
	own, others []string
}

func (l locker) call(program []string, args ...string) (output string, err error) {
	l.t.Helper()
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], args...)...)
	cmd.Env = append(fixtures.CleanEnv(), "no_proxy=127.0.0.1", "PYTHONDONTWRITEBYTECODE=1")
	text, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(text)), err
}

func (l locker) does(args ...string) string {
	l.t.Helper()
	output, err := l.call(l.own, args...)
	if err != nil {
		l.t.Fatalf("%q: %v\n%s", args, err, output)
	}
	return output
}

// refuses checks that a lock is refused in both examples, at once and by name.
func (l locker) refuses(holder string, args ...string) {
	l.t.Helper()
	for _, program := range [][]string{l.own, l.others} {
		output, err := l.call(program, append([]string{"lock"}, args...)...)
		if err == nil || !strings.Contains(output, "locked by") || !strings.Contains(output, holder) {
			l.t.Errorf("%s: %q: %v\n%s", program[0], args, err, output)
		}
	}
}

func (l locker) readersAndWriters(resource string) {
	l.t.Helper()
	first, second := l.does("lock", "ann", resource, "read"), l.does("lock", "bob", resource, "read")
	l.refuses("", "eve", resource, "write")
	l.does("unlock", first)
	l.refuses("", "eve", resource, "write")
	l.does("unlock", second)
	l.does("unlock", second)
	writer := l.does("lock", "eve", resource, "write")
	l.refuses("eve", "ann", resource, "read")
	l.refuses("eve", "ann", resource, "write")
	l.refuses("eve", "eve", resource, "write") // not reentrant
	l.does("unlock", writer)
	l.does("unlock", l.does("lock", "ann", resource, "read")) // a refused request leaves no claim
}

func (l locker) lists(prefix string) {
	l.t.Helper()
	id := map[string]string{}
	for _, lock := range [][3]string{{"ann", "a", "read"}, {"bob", "a", "read"}, {"ann", "b", "write"}} {
		id[lock[0]+lock[1]] = l.does("lock", prefix+lock[0], prefix+lock[1], lock[2])
	}
	l.does("unlock", l.does("lock", prefix+"ann", prefix+"over", "write"))
	annA := id["anna"] + " " + prefix + "ann " + prefix + "a read"
	bobA := id["boba"] + " " + prefix + "bob " + prefix + "a read"
	annB := id["annb"] + " " + prefix + "ann " + prefix + "b write"
	for query, want := range map[string][]string{
		"client=" + prefix + "ann":                                    {annA, annB},
		"resource=" + prefix + "a":                                    {annA, bobA},
		"client=" + prefix + "ann type=write":                         {annB},
		"client=" + prefix + "bob resource=" + prefix + "a type=read": {bobA},
		"client=" + prefix + "bob type=write":                         nil,
		"resource=" + prefix + "over":                                 nil,
	} {
		for _, program := range [][]string{l.own, l.others} {
			output, err := l.call(program, append([]string{"locks"}, strings.Fields(query)...)...)
			if err != nil || output != strings.Join(want, "\n") {
				l.t.Errorf("%s: %s: %v\n%s\nwant %q", program[0], query, err, output, want)
			}
		}
	}
	for _, lock := range id {
		l.does("unlock", lock)
	}
}

// The commands of the document work as it says.
func TestResourceLockDocument(t *testing.T) {
	t.Parallel()
	server := fixtures.StartLocket(t, harness.Embedded(t))
	lines := harness.CommandsOf(t, "../../docs/resource-locking.md", "Over HTTP", "curl")
	codes := []string{"201", "201", "409", "200", "204"}
	if len(lines) != len(codes) {
		t.Fatalf("%q", lines)
	}
	for i, line := range lines {
		if i == 3 { // a list, which runCurl does not read
			line = strings.Replace(line, "curl", "curl -o /dev/null", 1)
		}
		if code, answer, err := runCurl(t, server, line); err != nil || code != codes[i] {
			t.Errorf("%s: %s, %+v, %v; want %s", line, code, answer, err, codes[i])
		}
	}
}
