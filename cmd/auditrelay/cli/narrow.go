package cli

import (
	"fmt"
	"io"
	"strings"
)

// unbounded is the width outside a terminal: nothing is cut or left out for a program.
const unbounded = 1 << 16

// tableWidth is the width of a table on w.
func tableWidth(w io.Writer) int {
	if file := fileOf(w); isTerminal(file) {
		return widthOf(file)
	}
	return unbounded
}

// printGrid prints a table, and further texts below it, within width.
func printGrid(w io.Writer, g *grid, width int, further ...string) error {
	lines := g.lines(brush{}, width)
	for _, text := range further {
		lines = append(lines, wrap(text, width)...)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// plainCells are cells without a colour.
func plainCells(texts ...string) []inked {
	cells := make([]inked, len(texts))
	for i, text := range texts {
		cells[i] = inked{printable(text), inkPlain}
	}
	return cells
}
