package cli

import (
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	columnGap = "  "
	// narrowest is the least width of a cut column.
	narrowest = 18
)

// column is a column of a [grid].
type column struct {
	title string
	right bool // aligned
	flex  bool // its texts may be cut
	// rank is its place among those to leave out where there is no room, the highest first;
	// 0 stays.
	rank int
}

// inked is a text in a grid.
type inked struct {
	text string
	ink  ink
}

// grid is a table of a limited width.
type grid struct {
	columns []column
	rows    []gridRow
}

// gridRow is a row, and lines of text below it.
type gridRow struct {
	cells []inked
	notes []inked
}

func (g *grid) add(notes []inked, cells ...inked) { g.rows = append(g.rows, gridRow{cells, notes}) }

// lines draws the grid.
func (g *grid) lines(b brush, width int) []string {
	widths := g.fit(width)
	titles := make([]inked, len(g.columns))
	for i, c := range g.columns {
		titles[i] = inked{c.title, inkStrong}
	}
	all := []string{g.line(b, widths, titles)}
	for _, row := range g.rows {
		all = append(all, g.line(b, widths, row.cells))
		for _, note := range row.notes {
			all = append(all, noteLines(b, note, noteIndent, width)...)
		}
	}
	return all
}

// fit gives each column its width; 0 leaves it out. One column has to be flex.
func (g *grid) fit(width int) []int {
	widths := make([]int, len(g.columns))
	for i, c := range g.columns {
		widths[i] = utf8.RuneCountInString(c.title)
		used := false
		for _, row := range g.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row.cells[i].text))
			used = used || row.cells[i].text != ""
		}
		if !used && c.rank > 0 {
			widths[i] = 0
		}
	}
	flex := slices.IndexFunc(g.columns, func(c column) bool { return c.flex })
	for {
		over, room, last := total(widths)-width, max(0, widths[flex]-narrowest), g.lastRank(widths)
		if over <= room || last < 0 {
			widths[flex] -= max(0, min(over, room))
			return widths
		}
		widths[last] = 0
	}
}

// lastRank is the next column to leave out, or -1.
func (g *grid) lastRank(widths []int) int {
	last := -1
	for i, c := range g.columns {
		if c.rank > 0 && widths[i] > 0 && (last < 0 || c.rank > g.columns[last].rank) {
			last = i
		}
	}
	return last
}

func total(widths []int) int {
	sum := 0
	for _, w := range widths {
		if w > 0 {
			sum += w + len(columnGap)
		}
	}
	return max(0, sum-len(columnGap))
}

func (g *grid) line(b brush, widths []int, cells []inked) string {
	var line strings.Builder
	gap := ""
	for i, c := range cells {
		if widths[i] == 0 {
			continue
		}
		text := cut(c.text, widths[i])
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
		line.WriteString(gap)
		if g.columns[i].right {
			line.WriteString(space + b.paint(c.ink, text))
		} else {
			line.WriteString(b.paint(c.ink, text) + space)
		}
		gap = columnGap
	}
	return strings.TrimRight(line.String(), " ")
}

// cut shortens a text in its middle: names of environments differ at both ends.
func cut(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	tail := (width - 1) / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// noteIndent is of the lines below a row.
const noteIndent = "    "

func noteLines(b brush, note inked, indent string, width int) (lines []string) {
	for _, line := range wrap(note.text, width-len(indent)) {
		lines = append(lines, indent+b.paint(note.ink, line))
	}
	return lines
}

// wrap breaks a text into lines of at most width.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		word = printable(word)
		for utf8.RuneCountInString(word) > width {
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:width])), string(runes[width:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
