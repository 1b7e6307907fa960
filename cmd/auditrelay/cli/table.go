package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/plaintext"
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

// unbounded is the width outside a terminal: nothing is cut or left out for a program.
const unbounded = math.MaxInt

// tableWidth is the width of a table on w.
func tableWidth(w io.Writer) int {
	if file := fileOf(w); isTerminal(file) {
		return widthOf(file)
	}
	return unbounded
}

// grid adds a table that fits the page, and further texts below it.
func (p *page) grid(g *grid, further ...string) {
	lines := g.lines(brush{}, p.width)
	for _, text := range further {
		lines = append(lines, wrap(text, p.width)...)
	}
	p.line("%s", strings.Join(lines, "\n"))
}

// plainCells are cells without a colour.
func plainCells(texts ...string) []inked {
	cells := make([]inked, len(texts))
	for i, text := range texts {
		cells[i] = inked{printable(text), inkPlain}
	}
	return cells
}

// ink is how a text is shown in a terminal: an SGR sequence, or nothing.
type ink string

// The inks.
const (
	inkPlain   ink = ""
	inkStrong  ink = "\x1b[1m"
	inkFaint   ink = "\x1b[2m"
	inkGood    ink = "\x1b[32m"
	inkWarning ink = "\x1b[33m"
	inkUnknown ink = "\x1b[36m"
	inkTrouble ink = "\x1b[1;31m"
	inkEnd         = "\x1b[0m"
)

// brush paints text, or leaves it plain. All text for the screen passes through it, so
// nothing else steers the terminal.
type brush struct{ colour bool }

func (b brush) paint(i ink, text string) string {
	text = printable(text)
	if !b.colour || i == inkPlain || strings.TrimSpace(text) == "" {
		return text
	}
	return string(i) + text + inkEnd
}

// colourFlag is --color.
type colourFlag struct{ when outputFlag }

func (f *colourFlag) addTo(cmd *cobra.Command) {
	f.when.value, f.when.allowed = "auto", []string{"auto", "always", "never"}
	cmd.Flags().Var(&f.when, "color", "`WHEN` to colour: auto, always, never; auto: in a terminal, unless $NO_COLOR is set")
}

// brush decides for an output; out is nil if it is no file.
func (f *colourFlag) brush(out *os.File) brush {
	switch f.when.value {
	case "always":
		return brush{true}
	case "never":
		return brush{}
	}
	// See https://no-color.org.
	return brush{isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(file *os.File) bool { return file != nil && term.IsTerminal(int(file.Fd())) }

// spanText is a length of time in seconds, for people: two units at most.
func spanText(seconds float64) string {
	switch s := int64(seconds); {
	case seconds < 0:
		return "0s"
	case seconds < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", seconds), ".0") + "s"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return pairText(s/60, "m", s%60, "s", s < 600)
	case s < 86400:
		return pairText(s/3600, "h", s%3600/60, "m", true)
	default:
		return pairText(s/86400, "d", s%86400/3600, "h", s < 10*86400)
	}
}

// ageText is the time since a moment; "-" for an unknown one.
func ageText(now, since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return spanText(now.Sub(since).Seconds())
}

func pairText(n int64, unit string, rest int64, small string, both bool) string {
	if both && rest > 0 {
		return fmt.Sprintf("%d%s%d%s", n, unit, rest, small)
	}
	return fmt.Sprintf("%d%s", n, unit)
}

// numberText groups the digits of a number.
func numberText(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// rateText is a rate per second.
func rateText(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 100:
		return fmt.Sprintf("%.1f", perSecond)
	}
	return numberText(perSecond)
}

// printable keeps the text of an event or a sink from steering the terminal. A dot takes
// the place of each, and columns keep their width.
func printable(text string) string { return plaintext.Replace(text, '·') }

// indented is JSON for people, with the terminal's control characters escaped. It is the
// same value for programs. Other text comes out printable.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return printable(string(raw))
	}
	return plaintext.JSON(b.Bytes())
}

// inertWriter writes JSON to a terminal, without its control characters: the same values, while
// a file or a pipe gets every byte as it is.
type inertWriter struct {
	to   io.Writer
	rest []byte // the first bytes of a character
}

func (w *inertWriter) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if utf8.RuneStart(text[len(text)-back]) {
			if !utf8.FullRune(text[len(text)-back:]) {
				whole -= back
			}
			break
		}
	}
	_, err := io.WriteString(w.to, plaintext.JSON(text[:whole]))
	w.rest = bytes.Clone(text[whole:])
	return len(p), err
}

// encodeLine writes a value as JSON on one line, without the terminal's control characters.
func encodeLine(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, plaintext.JSON(text))
	return err
}
