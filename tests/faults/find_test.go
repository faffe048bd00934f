//go:build faults

package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFaultsAreFound: the test that a patch names passes on the code, and fails with the fault.
func TestFaultsAreFound(t *testing.T) {
	var mu sync.Mutex
	var table bytes.Buffer
	whole := make(map[string]func() string) // the tests of each package without a fault
	all := readFaults(t)
	for _, f := range all {
		if whole[f.pkg] == nil {
			whole[f.pkg] = sync.OnceValue(func() string { return compile(t, f.pkg, "") })
		}
	}
	t.Run("each", func(t *testing.T) {
		for _, f := range all {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				found := "not found"
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					fmt.Fprintf(&table, "%-10s %-32s %s %s\n", found, f.name, f.pkg, f.test)
				}()
				if passed, output := run(t, whole[f.pkg](), f); !passed {
					t.Fatalf("%s %s fails without the fault:\n%s", f.pkg, f.test, end(output))
				}
				begin := time.Now()
				switch passed, output := run(t, compile(t, f.pkg, overlay(t, f)), f); {
				case passed:
					t.Errorf("%s %s does not find it: %s", f.pkg, f.test, f.text)
				case !strings.Contains(output, "--- FAIL: "+f.test):
					t.Errorf("%s %s ends without a verdict:\n%s", f.pkg, f.test, end(output))
				default:
					found = fmt.Sprintf("%.0f s", time.Since(begin).Seconds()) // real time: to see
				}
			})
		}
	})
	fmt.Print(table.String())
}

// overlay writes the files of a fault, and the file that tells Go to compile them in place of the work tree's.
func overlay(t *testing.T, f *fault) (path string) {
	t.Helper()
	patched, err := f.apply()
	if err != nil {
		t.Fatal(err)
	}
	replace, folder := make(map[string]string), t.TempDir()
	for name, text := range patched {
		original, err := filepath.Abs(filepath.Join(root, name))
		must(t, err)
		replace[original] = filepath.Join(folder, strings.ReplaceAll(name, "/", "-"))
		must(t, os.WriteFile(replace[original], []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	path = filepath.Join(folder, "overlay.json")
	must(t, os.WriteFile(path, text, 0o600))
	return path
}

// compile compiles the tests of a package, with the flags of `make test` so that both share Go's cache.
func compile(t *testing.T, pkg, overlay string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "tests")
	args := []string{"test", "-c", "-o", program, "-pgo=off", "-race", "-vet=off", "-ldflags=-w", "-gcflags=modernc.org/...=-race=false"}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not compile: %v\n%s", pkg, err, output)
	}
	return program
}

// run runs the test of a fault in its package's folder.
func run(t *testing.T, program string, f *fault) (passed bool, output string) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(f.test, "/", "$/^") + "$"
	args := []string{"-test.run=" + pattern, "-test.timeout=2m"}
	if strings.Contains(testsOf(t, f.pkg), `"pgregory.net/rapid"`) {
		args = append(args, "-rapid.nofailfile") // it would write into the work tree
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join(root, f.pkg)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=50")
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "no tests to run") {
		t.Fatalf("%s has no %s", f.pkg, f.test)
	}
	return err == nil, string(text)
}

// end returns the end of an output.
func end(output string) string { return output[max(0, len(output)-4000):] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
