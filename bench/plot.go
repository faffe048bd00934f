package main

import (
	"bytes"
	"html/template"
)

// bar is a bar of a plot.
type bar struct {
	Label string
	Value float64
	Text  string // the value as text

	Top, Base, Width float64 // its position, in pixels
}

// The sizes of the plot, in pixels.
const (
	plotWidth   = 960
	labelsWidth = 520
	textWidth   = 70
	barPitch    = 24
	plotHeader  = 40
)

// plotTemplate has colors that are readable on white and on black.
var plotTemplate = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" font-family="sans-serif" font-size="13" fill="#768390" role="img">
<title>{{.Title}}</title>
<text x="{{.Left}}" y="22" font-size="16">{{.Title}}</text>
{{range .Bars}}<text x="{{$.Labels}}" y="{{.Base}}" text-anchor="end">{{.Label}}</text>
<rect x="{{$.Left}}" y="{{.Top}}" width="{{printf "%.1f" .Width}}" height="16" fill="#3b82c4"/>
<text x="{{printf "%.1f" .Width}}" y="{{.Base}}" dx="{{$.Shift}}">{{.Text}}</text>
{{end}}</svg>
`))

// plot draws horizontal bars as SVG. The longest one takes the full width.
func plot(title string, bars []bar) []byte {
	widest := 1e-9
	for _, b := range bars {
		widest = max(widest, b.Value)
	}
	for i := range bars {
		b := &bars[i]
		b.Top = float64(plotHeader + i*barPitch)
		b.Base = b.Top + 13
		b.Width = b.Value / widest * (plotWidth - labelsWidth - textWidth)
	}
	var out bytes.Buffer
	err := plotTemplate.Execute(&out, map[string]any{
		"Title": title, "Bars": bars, "Width": plotWidth, "Height": plotHeader + len(bars)*barPitch + 8,
		"Left": labelsWidth, "Labels": labelsWidth - 8, "Shift": labelsWidth + 6,
	})
	if err != nil {
		panic(err) // the template does not match the data
	}
	return out.Bytes()
}
