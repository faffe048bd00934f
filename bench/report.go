package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report has all results of a run.
type report struct {
	Machine machine
	Quick   bool
	Began   time.Time
	Took    float64 // seconds
	Rounds  int
	Seconds float64
	Lines   []tableLine
	Missing []string // programs that are not installed
	Results results
}

// tableLine is a row with its figures: medians over the rounds.
type tableLine struct {
	row
	Value, ReferenceValue  float64
	Ratio, Lowest, Highest float64 // of the rounds' ratios; 0 without a reference
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// values are the values of all rounds.
func (r results) values(f figure) (values []float64) {
	for _, found := range r[f.Measurement] {
		values = append(values, found[f.Metric])
	}
	return values
}

// fill computes the table from the results. A row without complete measurements has no line.
func (r *report) fill(rows []row) {
	r.Took = time.Since(r.Began).Seconds()
	for _, row := range rows {
		values := r.Results.values(row.Of)
		references := r.Results.values(row.Reference)
		if len(values) == 0 || row.Than != "" && len(references) == 0 {
			continue
		}
		line := tableLine{row: row, Value: median(values)}
		if row.Than != "" {
			line.ReferenceValue = median(references)
			ratios := make([]float64, len(values))
			for i := range values {
				ratios[i] = values[i] / max(references[i], 1e-9)
			}
			line.Ratio, line.Lowest, line.Highest = median(ratios), slices.Min(ratios), slices.Max(ratios)
		}
		r.Lines = append(r.Lines, line)
	}
}

// print prints the table, and the machine of the measurements.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w, "| | median | compared with | its median | ratio | lowest and highest |")
	fmt.Fprintln(w, "| --- | ---: | --- | ---: | ---: | ---: |")
	for _, l := range r.Lines {
		fmt.Fprintf(w, "| %s | %s | ", l.What, inUnits(l.Value, l.Of.Metric))
		if l.Than == "" {
			fmt.Fprintln(w, "| | | |")
			continue
		}
		fmt.Fprintf(w, "%s | %s | %.2f | %.2f to %.2f |\n", l.Than, inUnits(l.ReferenceValue, l.Reference.Metric), l.Ratio, l.Lowest, l.Highest)
	}
	fmt.Fprintf(w, "\n%s\n", r.provenance())
}

// provenance describes how the figures were measured.
func (r *report) provenance() string {
	m := r.Machine
	text := fmt.Sprintf("Measured on %s at commit %s: %s, %d cores, %.0f GiB, Linux %s;", r.Began.Format(time.DateOnly), m.Commit, m.Processor, m.Cores, m.MemoryMiB/1024, m.Kernel)
	for i, name := range slices.Sorted(maps.Keys(m.Versions)) {
		text += map[bool]string{true: " ", false: ", "}[i == 0] + name + " " + m.Versions[name]
	}
	text += fmt.Sprintf(". Rounds: %d, of %g s for each measurement; %.0f s in all.", r.Rounds, r.Seconds, r.Took)
	if len(r.Missing) > 0 {
		text += " Not installed: " + strings.Join(r.Missing, ", ") + "."
	}
	for _, warning := range m.Warnings {
		text += " **Warning: " + warning + ".**"
	}
	if r.Quick {
		text += " **A run of a moment: the figures mean nothing.**"
	}
	return text
}

// write writes the raw results, and the documents.
func (r *report) write(o options) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	if o.json != "" {
		if err := os.WriteFile(o.json, raw, 0o644); err != nil {
			return err
		}
	}
	if o.docs == "" {
		return nil
	}
	block := o.block()
	folder := filepath.Join(o.docs, "benchmarks")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	page := filepath.Join(o.docs, "benchmarks.md")
	before, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	r.print(&table)
	fmt.Fprintf(&table, "\n![ratios](benchmarks/%s-ratios.svg)\n\n![operations a second](benchmarks/%s-rates.svg)\n", block, block)
	after, err := replaceBlock(string(before), block, table.String())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for file, text := range map[string][]byte{
		filepath.Join(folder, block+".json"):       raw,
		filepath.Join(folder, block+"-ratios.svg"): plot("Locket's rate as a multiple of another system's", "Longer is better for Locket. At 1 both are equally fast.", true, r.ratioGroups()),
		filepath.Join(folder, block+"-rates.svg"):  plot("Operations per second", "Longer is better.", false, r.rateGroups()),
		page: []byte(after),
	} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// block is the name of the table on the page.
func (o options) block() string {
	switch {
	case o.peers:
		return "peers"
	case o.cluster:
		return "cluster"
	}
	return "bench"
}

// replaceBlock replaces the text between the two comments of a block.
func replaceBlock(page, block, text string) (string, error) {
	begin, end := "<!-- begin "+block+" -->\n", "<!-- end "+block+" -->"
	head, rest, found := strings.Cut(page, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("no %q with an %q behind it", strings.TrimSpace(begin), end)
	}
	return head + begin + text + end + tail, nil
}
