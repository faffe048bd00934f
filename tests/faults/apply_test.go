package faults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultsApply: every patch still fits the code, and its test exists. `make test-faults` shows that the test finds
// the fault.
func TestFaultsApply(t *testing.T) {
	all := readFaults(t)
	if len(all) < 40 {
		t.Errorf("only %d faults", len(all))
	}
	tests := make(map[string]string) // the text of a package's tests
	for _, f := range all {
		if _, err := f.apply(); err != nil {
			t.Errorf("tests/faults/%s.patch no longer fits: %v\nWrite its hunk against the code of today, with the same fault, and run `make test-faults FAULT=%s`.", f.name, err, f.name)
		}
		if _, read := tests[f.pkg]; !read {
			tests[f.pkg] = testsOf(t, f.pkg)
		}
		if name, _, _ := strings.Cut(f.test, "/"); !strings.Contains(tests[f.pkg], "\nfunc "+name+"(t ") {
			t.Errorf("tests/faults/%s.patch: %s has no %s: name the test that finds %q now", f.name, f.pkg, name, f.text)
		}
	}
}

// testsOf returns the text of all tests of a package.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestApply: a hunk fits in spite of other lines and indentation, and in exactly one place.
func TestApply(t *testing.T) {
	const head = "It skips b.\nBreaks: order.\nTest: ./x TestX\n\n--- a/x.go\n+++ b/x.go\n@@ -1,2 +1,2 @@ func x() {\n"
	f, err := parse(head + " \ta()\n-\tb()\n+\tc()\n")
	if err != nil || f.pkg != "./x" || f.test != "TestX" || f.text != "It skips b." || f.changes[0].file != "x.go" {
		t.Fatal(f, err)
	}
	if after, err := f.changes[0].apply("new\n\t\ta()\n\t\tb()\nend"); err != nil || after != "new\n\ta()\n\tc()\nend" {
		t.Error(after, err)
	}
	for name, text := range map[string]string{"gone": "a()\nx()\n", "twice": "a()\nb()\na()\nb()", "cut off": "a()"} {
		if _, err := f.changes[0].apply(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, bad := range []string{"", "no test\n\n--- a/x.go\n@@\n-a\n", strings.TrimSuffix(head, "@@ -1,2 +1,2 @@ func x() {\n"), strings.ReplaceAll(head, "@@", "  ") + "-b\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}
