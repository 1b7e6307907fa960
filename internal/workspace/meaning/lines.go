package meaning

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

const (
	maxLine    = 160     // characters of a line in a diff
	maxDiff    = 4 << 10 // bytes of a diff
	maxCompare = 1 << 20 // bytes of a text to compare by line
)

// diffLines compares two different texts by line: in unified format, and the counts of lines
// removed and added. Lines and the whole are cut. Texts above 1 MiB count as replaced, without a
// diff.
func diffLines(before, after string) (text string, removed, added int) {
	if len(before) > maxCompare || len(after) > maxCompare {
		return "", strings.Count(before, "\n") + 1, strings.Count(after, "\n") + 1
	}
	const names = 3 // lines with the names of files
	unified := string(diff.Diff("", []byte(before+"\n"), "", []byte(after+"\n")))
	lines := strings.Split(strings.TrimSuffix(unified, "\n"), "\n")[names:]
	marked := map[byte][]string{}
	for _, line := range lines {
		marked[line[0]] = append(marked[line[0]], line[1:])
	}
	from := 0
	if len(marked['-']) == 1 && len(marked['+']) == 1 {
		from = commonStart(marked['-'][0], marked['+'][0])
	}
	return cutDiff(lines, from), len(marked['-']), len(marked['+'])
}

// cutDiff cuts the lines of a diff, and shows those that changed from one of their characters on.
func cutDiff(lines []string, from int) string {
	var out strings.Builder
	left := 0 // lines left out
	for _, line := range lines {
		shown := visible(line[1:], maxLine)
		if from > 0 && (line[0] == '-' || line[0] == '+') {
			shown = "…" + visible(line[1+from:], maxLine)
		}
		if out.Len()+len(shown) > maxDiff {
			left++
			continue
		}
		out.WriteString(line[:1] + shown + "\n")
	}
	if left > 0 {
		fmt.Fprintf(&out, "… %s left out\n", plural(left, "line", "lines"))
	}
	return out.String()
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
