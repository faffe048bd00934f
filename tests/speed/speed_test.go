// Package speed_test checks that the result of no test depends on the speed of the machine.
package speed_test

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// reason begins the comment that justifies real time on its line.
const reason = "real time: "

// TestRealTime: tests sleep, wait for a time, and look at how much time has passed, in the fake time of a bubble. Others
// wait for a condition (harness.Eventually, Until, Await, HangTimeout), hand durations to harness.AtMost, or say on the
// line why the verdict does not depend on the speed: "// real time: ...". And no test skips.
func TestRealTime(t *testing.T) {
	for _, p := range parsePackages(t) {
		p.realTime(func(what string) { t.Errorf("%s without a reason", what) })
	}
}

// TestRealTimeIsFound: uses of real time are found, except in bubbles, with reasons, and by AtMost.
func TestRealTimeIsFound(t *testing.T) {
	set := token.NewFileSet()
	const header = "package x\nfunc TestX(t *testing.T) {\n"
	for text, want := range map[string]int{
		"time.Sleep(1)\n}":                                                            1,
		"for time.Since(begin) < 1 {}\n}":                                             1,
		"t.Skip()\n}":                                                                 1,
		"return fs.SkipDir\n}":                                                        0,
		"select { case <-c: case <-time.After(1): }\n}":                               1,
		"defer time.NewTimer(1).Stop()\n}":                                            1,
		"<-time.After(harness.HangTimeout)\n}":                                        0,
		"<-time.After(harness.HangTimeout / 99)\n}":                                   1,
		"<-time.After(1) // real time: it hangs\n}":                                   0,
		"synctest.Test(t, func(t *testing.T) { <-time.After(1) })\n}":                 0,
		"f := time.Sleep; f(1)\n}":                                                    1,
		"helper()\n}\nfunc helper() { time.Sleep(1) }":                                1,
		"time.Sleep(1) // real time: to see\n}":                                       0,
		"harness.AtMost(t, what, time.Since(begin), 1)\n}":                            0,
		"synctest.Test(t, func(t *testing.T) { time.Sleep(1) })\n}":                   0,
		"synctest.Test(t, func(t *testing.T) { h() })\n}\nfunc h() { time.Sleep(1) }": 0,
		"inBubble(t, func() { time.Sleep(1) })\n}\nfunc inBubble(t *testing.T, do func()) { synctest.Test(t, func(*testing.T) { do() }) }": 0,
		"h.tb.Skipf(\"\")\n}\nfunc BenchmarkX(b *testing.B) { b.SkipNow() }":                                                               2,
	} {
		file, err := parser.ParseFile(set, "x_test.go", header+text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		(&pkg{set, []*ast.File{file}}).realTime(func(string) { n++ })
		if n != want {
			t.Errorf("found %d times in %s, want %d", n, text, want)
		}
	}
}

// pkg is the tests of a package, or a package for tests.
type pkg struct {
	set   *token.FileSet
	files []*ast.File
}

// parsePackages parses the packages of `make test`.
func parsePackages(t *testing.T) map[string]*pkg {
	t.Helper()
	packages := make(map[string]*pkg)
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(path, "_test.go") && !strings.Contains(string(text), "\t\"testing\"\n") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil || isTagged(file) {
			return err
		}
		folder := filepath.Dir(name)
		if packages[folder] == nil {
			packages[folder] = &pkg{set: set}
		}
		packages[folder].files = append(packages[folder].files, file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// isTagged reports whether a file is only for builds with a tag of this project.
func isTagged(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if !constraint.IsGoBuild(comment.Text) {
				continue
			}
			if x, err := constraint.Parse(comment.Text); err == nil && !x.Eval(func(tag string) bool { return tag == "linux" || tag == "unix" }) {
				return true
			}
		}
	}
	return false
}

var (
	// realTimes are the functions of package time that tests may call only in bubbles.
	realTimes = []string{"Sleep", "Since", "Until", "After", "NewTimer"}
	// skips are the methods that end a test without a verdict.
	skips = []string{"Skip", "Skipf", "SkipNow"}
)

// realTime calls found for each use of real time without a reason, and for each skip.
func (p *pkg) realTime(found func(what string)) {
	reasons := p.reasons()
	inBubbles := findBubbles(p.files)
	for _, f := range inBubbles.funcs {
		fake := inBubbles.inBubble(f)
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && (isCall(call, "harness", "AtMost") || boundsHang(call)) {
				return false
			}
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := selector.Sel.Name
			of, ok := selector.X.(*ast.Ident)
			isReal := ok && of.Name == "time" && !fake && slices.Contains(realTimes, name)
			if at := p.set.Position(n.Pos()); (isReal || slices.Contains(skips, name)) && !reasons[at.Filename][at.Line] {
				found(at.String() + ": " + types.ExprString(selector))
			}
			return true
		})
	}
}

// boundsHang reports whether a call is time.After(harness.HangTimeout), which ends a test that hangs.
func boundsHang(call *ast.CallExpr) bool {
	if !isCall(call, "time", "After") || len(call.Args) != 1 {
		return false
	}
	bound := types.ExprString(call.Args[0])
	return bound == "harness.HangTimeout" || bound == "HangTimeout"
}

// reasons returns the lines that have one.
func (p *pkg) reasons() map[string]map[int]bool {
	lines := make(map[string]map[int]bool)
	for _, file := range p.files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				at := p.set.Position(comment.Pos())
				if lines[at.Filename] == nil {
					lines[at.Filename] = make(map[int]bool)
				}
				if strings.HasPrefix(comment.Text, "// "+reason) {
					lines[at.Filename][at.Line] = true
				}
			}
		}
	}
	return lines
}
