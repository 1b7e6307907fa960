package meaning

import (
	"fmt"
	"strings"
)

const (
	maxLine    = 160     // characters of a line in a diff
	maxDiff    = 4 << 10 // bytes of a diff
	maxCompare = 1 << 20 // bytes of a text to compare by line
	maxCells   = 250_000 // of the table to align lines
	around     = 2       // equal lines before and after a change
)

// diffLines compares two texts by line: as one hunk in unified format, and the counts of
// lines removed and added. Lines and the whole are cut. Texts above 1 MiB count as
// replaced, without a diff.
func diffLines(before, after string) (diff string, removed, added int) {
	if len(before) > maxCompare || len(after) > maxCompare {
		return "", strings.Count(before, "\n") + 1, strings.Count(after, "\n") + 1
	}
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	start := 0
	for start < min(len(a), len(b)) && a[start] == b[start] {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	edits := align(a[start:endA], b[start:endB])
	for _, e := range edits {
		switch e.mark {
		case '-':
			removed++
		case '+':
			added++
		}
	}
	lead, tail := max(0, start-around), min(len(a), endA+around)
	h := hunk{}
	fmt.Fprintf(&h, "@@ -%d,%d +%d,%d @@\n", lead+1, tail-lead, lead+1, tail-lead+len(b)-len(a))
	h.lines(' ', a[lead:start])
	h.edits(edits)
	h.lines(' ', a[endA:tail])
	return h.String(), removed, added
}

// edit is a line with '-', '+' or ' ' for one on both sides.
type edit struct {
	mark byte
	line string
}

// align finds the longest common sequence of lines. If the table for it would be too
// large, it replaces all lines.
func align(a, b []string) []edit {
	if len(a)*len(b) > maxCells {
		return append(marked('-', a), marked('+', b)...)
	}
	common := commonLengths(a, b)
	var edits []edit
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			edits = append(edits, edit{' ', a[i]})
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			edits = append(edits, edit{'-', a[i]})
			i++
		default:
			edits = append(edits, edit{'+', b[j]})
			j++
		}
	}
	return append(append(edits, marked('-', a[i:])...), marked('+', b[j:])...)
}

// commonLengths is, at [i][j], how many lines a[i:] and b[j:] have in common.
func commonLengths(a, b []string) [][]int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}

func marked(mark byte, lines []string) []edit {
	edits := make([]edit, len(lines))
	for i, line := range lines {
		edits[i] = edit{mark, line}
	}
	return edits
}

// hunk is a text ending with a count of the lines beyond its limit.
type hunk struct {
	strings.Builder
	left int // lines left out
}

func (h *hunk) lines(mark byte, lines []string) { h.edits(marked(mark, lines)) }

func (h *hunk) edits(edits []edit) {
	from := 0
	if len(edits) == 2 && edits[0].mark == '-' && edits[1].mark == '+' {
		from = commonStart(edits[0].line, edits[1].line)
	}
	for _, e := range edits {
		line := visible(e.line[from:], maxLine)
		if from > 0 {
			line = "…" + line
		}
		if h.Len()+len(line) > maxDiff {
			h.left++
			continue
		}
		h.WriteByte(e.mark)
		h.WriteString(line + "\n")
	}
}

func (h *hunk) String() string {
	if h.left > 0 {
		return h.Builder.String() + fmt.Sprintf("… %s left out\n", plural(h.left, "line", "lines"))
	}
	return h.Builder.String()
}

// commonStart is where two long lines are worth showing from: shortly before they differ.
func commonStart(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n < maxLine/2 {
		return 0
	}
	n -= maxLine / 4
	for n > 0 && a[n]&0xC0 == 0x80 { // not within a character
		n--
	}
	return n
}
