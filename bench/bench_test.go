package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/locket-service/locket/db/backup"
	"github.com/locket-service/locket/fixtures"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		main() // a child process of the benchmark
		return
	}
	// The children that are built with the race detector would each sleep for a second at their end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	m.Run()
	fixtures.Shutdown()
}

// The whole benchmark works in its quick form: each row has its figures, unless a program is not installed, and the
// documents are written.
func TestQuick(t *testing.T) {
	docs := t.TempDir()
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(docs, "benchmarks.md"), page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bench([]string{"-quick", "-docs", docs, "-folder", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(docs, "benchmarks", "bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		i := slices.IndexFunc(got.Lines, func(l tableLine) bool { return l.Name == r.Name })
		needsRedis := strings.Contains(r.Name, "redis")
		switch {
		case i < 0 && needsRedis && slices.Contains(got.Missing, "redis"):
		case i < 0:
			t.Errorf("there is no row %s", r.Name)
		case r.Name == "mix": // how many jobs end within a moment depends on the machine
		case got.Lines[i].Value <= 0 && slices.Contains([]string{rate, memory, start}, r.Of.Metric):
			t.Errorf("%s has no figure: %+v", r.Name, got.Lines[i])
		case got.Lines[i].ReferenceValue <= 0 && r.Reference.Metric == rate:
			t.Errorf("%s has nothing to compare with: %+v", r.Name, got.Lines[i])
		}
	}
	if got.Machine.Cores == 0 || got.Machine.Versions["Go"] == "" || !got.Quick {
		t.Errorf("the report does not say how it came about: %+v", got.Machine)
	}
	checkDocs(t, docs, got)
}

// barsOf counts the bars of groups.
func barsOf(groups []group) (n int) {
	for _, g := range groups {
		n += len(g.Bars)
	}
	return n
}

// checkDocs: the page has the table, and the plots are well-formed and have a bar for each ratio.
func checkDocs(t *testing.T, docs string, of report) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range of.Lines {
		if !strings.Contains(string(page), "| "+l.What+" | ") {
			t.Errorf("the page has no row %q", l.What)
		}
	}
	if !strings.Contains(string(page), "A run of a moment") {
		t.Error("the page does not say that the figures mean nothing")
	}
	if n, want := bars(t, filepath.Join(docs, "benchmarks", "bench-ratios.svg")), barsOf(of.ratioGroups()); n != want || n == 0 {
		t.Errorf("the plot of ratios has %d bars, want %d", n, want)
	}
	if n, want := bars(t, filepath.Join(docs, "benchmarks", "bench-rates.svg")), barsOf(of.rateGroups()); n != want || n == 0 {
		t.Errorf("the plot of rates has %d bars, want %d", n, want)
	}
}

func bars(t *testing.T, file string) (n int) {
	t.Helper()
	text, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	for tokens := xml.NewDecoder(text); ; {
		token, err := tokens.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "rect" {
			n++
		}
	}
}

// Programs that are not installed are found before anything is measured, and named.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	o, _, err := parseOptions([]string{"-rows", "^session-256-redis$"})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{options: o}
	if l.installed("redis") || l.installed("mariadb") != (o.dsn != "") {
		t.Error("what is not there is installed")
	}
	l.rounds = 0 // measure nothing
	all, missing, err := l.measureAll(o.selected())
	if err != nil || len(all) != 0 || !slices.Equal(missing, []string{"redis"}) {
		t.Errorf("got %v, %q, %v", all, missing, err)
	}
}

// The data of the server with many claims is consistent.
func TestFill(t *testing.T) {
	checker := backup.NewChecker()
	if err := fill(checker, sizes{claims: 300, line: 20}); err != nil {
		t.Fatal(err)
	}
	if checker.Found != 0 || checker.Active != 301 || checker.Waiting != 20 || checker.History != 300 {
		t.Errorf("%d active, %d waiting, %d finished; %d problems: %q", checker.Active, checker.Waiting, checker.History, checker.Found, checker.Problems)
	}
}

// Each row refers to existing measurements, and names are unique.
func TestRows(t *testing.T) {
	for _, table := range [][]row{rows, peerRows, clusterRows} {
		seen := make(map[string]bool)
		for _, r := range table {
			if seen[r.Name] {
				t.Errorf("%s is there twice", r.Name)
			}
			seen[r.Name] = true
			for _, f := range []figure{r.Of, r.Reference} {
				known := slices.ContainsFunc(slices.Concat(measurements, clusterMeasurements), func(m measurement) bool { return m.name == f.Measurement })
				if f != (figure{}) && (!known || units[f.Metric] == "") {
					t.Errorf("%s is of %+v, which is not measured", r.Name, f)
				}
			}
		}
	}
}

// A ratio is the median of the rounds' ratios, and not the ratio of medians.
func TestRatio(t *testing.T) {
	r := report{Results: results{
		"a": {{rate: 10}, {rate: 30}, {rate: 20}},
		"b": {{rate: 10}, {rate: 10}, {rate: 40}},
	}}
	r.fill([]row{
		{Name: "ratio", Of: figure{"a", rate}, Than: "b", Reference: figure{"b", rate}},
		{Name: "alone", Of: figure{"a", rate}},
		{Name: "not measured", Of: figure{"a", rate}, Than: "c", Reference: figure{"c", rate}},
	})
	if len(r.Lines) != 2 {
		t.Fatalf("got %+v", r.Lines)
	}
	if l := r.Lines[0]; l.Value != 20 || l.ReferenceValue != 10 || l.Ratio != 1 || l.Lowest != 0.5 || l.Highest != 3 {
		t.Errorf("got %+v", l)
	}
}

func TestReplaceBlock(t *testing.T) {
	const page = "head\n<!-- begin x -->\nold\n<!-- end x -->\ntail\n"
	got, err := replaceBlock(page, "x", "new\n")
	if want := strings.Replace(page, "old", "new", 1); err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := replaceBlock(page, "y", "new\n"); err == nil {
		t.Error("a block that is not there is replaced")
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-rounds", "0"}, {"-seconds", "0"}, {"-seconds", "NaN"}, {"-rows", "("}, {"-wrong"}, {"-help"}} {
		if _, _, err := parseOptions(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o, _, err := parseOptions([]string{"-rows", "^unary-1-", "-rounds", "5"})
	if err != nil || o.rounds != 5 || len(o.selected()) != 2 || o.size != fullSize {
		t.Errorf("got %+v, %v", o, err)
	}
	if err := bench([]string{"-rows", "nothing"}); err == nil {
		t.Error("a run without a row is a success")
	}
}

// TestProfile: what is recorded for the compiler is a profile of the processor.
func TestProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "default.pgo")
	if err := bench([]string{"-quick", "-rows", "^session-256-echo$", "-profile", file, "-folder", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", file).CombinedOutput()
	if err != nil || !strings.Contains(string(top), "Type: cpu") {
		t.Errorf("%v\n%s", err, top)
	}
	if err := bench([]string{"-quick", "-rows", "^idle-processor$", "-profile", file, "-folder", t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no row") {
		t.Errorf("without a load: %v", err)
	}
}

// TestWithCommas: thousands are separated, and fractions stay.
func TestWithCommas(t *testing.T) {
	for number, want := range map[string]string{"0": "0", "999": "999", "1000": "1,000", "54270": "54,270", "1234567": "1,234,567", "0.58": "0.58", "1234.5": "1,234.5"} {
		if got := withCommas(number); got != want {
			t.Errorf("%s: %s, want %s", number, got, want)
		}
	}
}

// TestLoads: each measurement of a rate has a system with a color, and a load.
func TestLoads(t *testing.T) {
	for _, m := range slices.Concat(measurements, clusterMeasurements) {
		if system, load := m.load(); colors[system] == "" || load == "" {
			t.Errorf("%s: %q, %q", m.name, system, load)
		}
	}
}
