// Plot draws docs/mesh.svg: what finding a client costs against the number of relays.
// It takes the figures from the table in docs/mesh.md.
//
//	go run ./internal/meshsim/plot docs/mesh.md docs/mesh.svg
package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fail(errors.New("usage: plot TABLE.md PLOT.svg"))
	}
	page, err := os.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	rows, err := read(string(page))
	if err != nil {
		fail(err)
	}
	if err := os.WriteFile(os.Args[2], draw(rows), 0o644); err != nil { // #nosec G306: it is for all to read
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "plot:", err)
	os.Exit(1)
}

// A row is what was measured with so many relays: frames a lookup.
type row struct{ relays, owners, opened, broadcast float64 }

// head is how the header of the table begins.
const head = "| relays | clients |"

var errTable = errors.New("the page has no table of lookups as internal/meshsim prints it")

// read finds the table. A cell begins with its number.
func read(page string) (rows []row, err error) {
	_, table, _ := strings.Cut(page, head)
	for _, line := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(line, "|")
		if len(cells) < 8 {
			break
		}
		if strings.HasPrefix(cells[1], "-") {
			continue
		}
		var numbers [8]float64
		for i := 1; i < len(numbers); i++ {
			first, _, _ := strings.Cut(strings.TrimSpace(cells[i]), " ")
			if numbers[i], err = strconv.ParseFloat(strings.ReplaceAll(first, ",", ""), 64); err != nil {
				return nil, errTable
			}
		}
		rows = append(rows, row{relays: numbers[1], owners: numbers[5], opened: numbers[6], broadcast: numbers[7]})
	}
	if len(rows) < 2 {
		return nil, errTable
	}
	return rows, nil
}

// The picture, in its own units. Both axes are logarithmic.
const (
	width, height            = 760, 440
	left, right, top, bottom = 70, 190, 50, 60
	leastX                   = 8
	leastY, mostY            = 1, 10_000
)

func y(v float64) float64 { return height - bottom - (height-top-bottom)*part(v, leastY, mostY) }

func part(v, least, most float64) float64 {
	return math.Log(math.Max(v, least)/least) / math.Log(most/least)
}

func draw(rows []row) []byte {
	var b bytes.Buffer
	mostX := 1.2 * rows[len(rows)-1].relays
	x := func(v float64) float64 { return left + (width-left-right)*part(v, leastX, mostX) }
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="13">`, width, height)
	line(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	line(`<text x="%d" y="26" font-size="16" fill="#111">Frames between relays to find one client</text>`, left)
	for v := float64(leastY); v <= mostY; v *= 10 {
		line(`<path d="M%d %.1fH%d" stroke="#ddd"/>`, left, y(v), width-right)
		line(`<text x="%d" y="%.1f" text-anchor="end" fill="#555">%s</text>`, left-8, y(v)+4, grouped(v))
	}
	for _, r := range rows {
		line(`<path d="M%.1f %dV%d" stroke="#eee"/>`, x(r.relays), top, height-bottom)
		line(`<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`, x(r.relays), height-bottom+20, grouped(r.relays))
	}
	line(`<text x="%d" y="%d" text-anchor="middle" fill="#555">relays</text>`, left+(width-left-right)/2, height-bottom+42)
	for _, s := range []struct {
		label, color, dash string
		of                 func(row) float64
	}{
		{"all relays asked", "#c2410c", "", func(r row) float64 { return r.broadcast }},
		{"owners asked,", "#1d4ed8", "6 4", func(r row) float64 { return r.opened }},
		{"owners asked", "#1d4ed8", "", func(r row) float64 { return r.owners }},
	} {
		var points strings.Builder
		for _, r := range rows {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(r.relays), y(s.of(r)))
		}
		line(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5" stroke-dasharray="%s"/>`, strings.TrimSpace(points.String()), s.color, s.dash)
		for _, r := range rows {
			line(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x(r.relays), y(s.of(r)), s.color)
		}
		last := rows[len(rows)-1]
		line(`<text x="%.1f" y="%.1f" fill="%s">%s</text>`, x(last.relays)+12, y(s.of(last))+4, s.color, s.label)
		if s.dash != "" {
			line(`<text x="%.1f" y="%.1f" fill="%s">with links opened for it</text>`, x(last.relays)+12, y(s.of(last))+20, s.color)
		}
	}
	line(`</svg>`)
	return b.Bytes()
}

// grouped writes a number up to 999,999 as people do.
func grouped(v float64) string {
	if v < 1000 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
}
