package program_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// outside is the program of a module that uses package lock, around the README's examples.
const outside = `package main

import (
	"context"
	"os"

	"github.com/tedsuo/ifrit"
	"github.com/tedsuo/ifrit/grouper"
	"github.com/tedsuo/ifrit/sigmon"

	"github.com/locket-service/locket/lock"
)

func makeReport(context.Context, uint64) error { return nil }

func locked(ctx context.Context) (*lock.Client, error) {
%s
	return client, err
}

func led(client *lock.Client, work ifrit.Runner) ifrit.Runner {
%s
	return sigmon.New(group)
}

func main() {
	client, err := locked(context.Background())
	if err != nil {
		os.Exit(1)
	}
	<-ifrit.Invoke(led(client, ifrit.RunFunc(nil))).Wait()
}
`

// TestOutsideModule: a module of its own that imports package lock and ifrit can be tidied, built and vetted. Modules that are not in
// Go's cache come from the proxy of Go's environment.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example := func(document, contains string) string {
		t.Helper()
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(document), -1) {
			if strings.Contains(block[1], contains) {
				return block[1]
			}
		}
		t.Fatalf("%s has no example with %s", document, contains)
		return ""
	}
	module := read("go.mod")
	ifrit := regexp.MustCompile(`github.com/tedsuo/ifrit v\S+`).FindString(module)
	goes := regexp.MustCompile(`(?m)^go .*$`).FindString(module)

	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": fmt.Sprintf(outside, example("README.md", "client.Do("), example("docs/go.md", "grouper.NewOrdered(")),
		"go.mod":  fmt.Sprintf("module example.com/outside\n\n%s\n\nrequire %s\n\nreplace github.com/locket-service/locket => %s\n", goes, ifrit, root),
		"go.sum":  read("go.sum"), // so that modules in the cache need no look-up
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"mod tidy", "build -o /dev/null ./...", "vet ./..."} {
		cmd := exec.CommandContext(t.Context(), "go", strings.Fields(line)...)
		cmd.Dir = dir
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", line, err, output)
		}
	}
}
