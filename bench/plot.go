package main

import (
	"bytes"
	"fmt"
	"html/template"
	"slices"
	"strings"
)

// group is the bars of one load.
type group struct {
	Title string
	Bars  []bar

	Base float64 // of the title, in pixels
}

// bar is a bar of a plot: the figure of a system, or the ratio to it.
type bar struct {
	System string
	Value  float64
	Text   string // the value as text

	Top, Base, Width float64 // its position, in pixels
	Color            string
}

// The sizes of a plot, in pixels.
const (
	plotWidth   = 960
	labelsWidth = 170
	textWidth   = 90
	barPitch    = 20
	groupPitch  = 30
	plotHeader  = 52
)

// colors has one color for each system, readable on white and on black.
var colors = map[string]string{
	"Locket": "#3b82c4", "Locket on MariaDB": "#7aa6d1", "Redis": "#d05a4e", "ZooKeeper": "#b0883a", "etcd": "#4a9d6e", "the echo": "#8b7bb8", "the unary echo": "#8b7bb8",
	"three of Locket": "#3b82c4", "three, etcd inside": "#7aa6d1", "three of ZooKeeper": "#b0883a", "three of etcd": "#4a9d6e",
}

const otherColor = "#768390"

var plotTemplate = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" font-family="sans-serif" font-size="13" fill="#768390" role="img">
<title>{{.Title}}</title>
<text x="8" y="20" font-size="16">{{.Title}}</text>
<text x="8" y="38">{{.Better}}</text>
{{range .Groups}}<text x="8" y="{{.Base}}" font-weight="bold">{{.Title}}</text>
{{range .Bars}}<text x="{{$.Labels}}" y="{{.Base}}" text-anchor="end">{{.System}}</text>
<rect x="{{$.Left}}" y="{{.Top}}" width="{{printf "%.1f" .Width}}" height="14" fill="{{.Color}}"/>
<text x="{{printf "%.1f" .Width}}" y="{{.Base}}" dx="{{$.Shift}}">{{.Text}}</text>
{{end}}{{end}}{{if .One}}<line x1="{{printf "%.1f" .One}}" x2="{{printf "%.1f" .One}}" y1="46" y2="{{.Bottom}}" stroke="#768390" stroke-dasharray="4 3"/>
<text x="{{printf "%.1f" .One}}" y="{{.Bottom}}" dx="4">1</text>
{{end}}</svg>
`))

// plot draws groups of horizontal bars as SVG. The longest bar takes the full width. With one, a line stands at the value 1.
func plot(title, better string, one bool, groups []group) []byte {
	widest := 1e-9
	for _, g := range groups {
		for _, b := range g.Bars {
			widest = max(widest, b.Value)
		}
	}
	const full = plotWidth - labelsWidth - textWidth
	y := float64(plotHeader)
	for i := range groups {
		g := &groups[i]
		g.Base = y + 14
		y += groupPitch - 8
		for j := range g.Bars {
			b := &g.Bars[j]
			b.Top, b.Base, b.Width = y, y+12, b.Value/widest*full
			if b.Color = colors[b.System]; b.Color == "" {
				b.Color = otherColor
			}
			y += barPitch
		}
		y += 8
	}
	lineAt := 0.0
	if one {
		lineAt = labelsWidth + full/widest
	}
	var out bytes.Buffer
	err := plotTemplate.Execute(&out, map[string]any{
		"Title": title, "Better": better, "Groups": groups, "Width": plotWidth, "Height": int(y) + 8, "Bottom": int(y),
		"Left": labelsWidth, "Labels": labelsWidth - 8, "Shift": labelsWidth + 6, "One": lineAt,
	})
	if err != nil {
		panic(err) // the template does not match the data
	}
	return out.Bytes()
}

// addTo adds a bar to the group with a title, after the others.
func addTo(groups []group, title string, b bar) []group {
	i := slices.IndexFunc(groups, func(g group) bool { return g.Title == title })
	if i < 0 {
		return append(groups, group{Title: title, Bars: []bar{b}})
	}
	groups[i].Bars = append(groups[i].Bars, b)
	return groups
}

// ratioGroups returns the ratios of rates, by load.
func (r *report) ratioGroups() (groups []group) {
	for _, l := range r.Lines {
		if l.Than != "" && l.Of.Metric == rate {
			groups = addTo(groups, l.What, bar{System: l.Than, Value: l.Ratio, Text: fmt.Sprintf("%.2f", l.Ratio)})
		}
	}
	return groups
}

// rateGroups returns the rate of each measurement once, by load.
func (r *report) rateGroups() (groups []group) {
	for _, m := range slices.Concat(measurements, clusterMeasurements) {
		if rates := r.Results.values(figure{m.name, rate}); len(rates) > 0 && rates[0] > 0 {
			system, load := m.load()
			groups = addTo(groups, load, bar{System: system, Value: median(rates), Text: inUnits(median(rates), rate)})
		}
	}
	return groups
}

// systems are the names of systems, by the first word of a measurement's name.
var systems = map[string]string{
	"locket": "Locket", "mariadb": "Locket on MariaDB", "echo": "the echo", "redis": "Redis", "etcd": "etcd", "zookeeper": "ZooKeeper",
	"locket3": "three of Locket", "embedded3": "three, etcd inside", "etcd3": "three of etcd", "zookeeper3": "three of ZooKeeper",
}

// load returns the system that a measurement measures, and its load.
func (m measurement) load() (system, load string) {
	first, rest, _ := strings.Cut(m.name, "-")
	if system = systems[first]; system == "" {
		system, rest = "Locket", m.name
	}
	switch kind, n, _ := strings.Cut(rest, "-"); {
	case rest == "1":
		return system, "Lock and Release, one caller"
	case kind == "session":
		return system, "Streams of sessions, " + n + " in flight"
	case kind == "at":
		return system, "Lock and Release at the leader, " + n + " callers"
	case kind == "hand":
		return system, "Hand-offs, 64 waiters"
	case rest == "mix":
		return system, "REST, a mix of requests: activations"
	case rest == "million":
		return system, "256 callers beside 2,000,000 claims"
	default:
		return system, "Lock and Release, " + rest + " callers"
	}
}
