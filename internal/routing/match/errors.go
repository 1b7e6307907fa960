package match

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// Error is one fault of an expression, with its place.
type Error struct {
	Line, Column int // from 1; columns count characters
	Reason       string

	oneLine bool // the error does not show the line
}

// Error returns "column 7: REASON", and shows the line if there are several.
func (e Error) Error() string {
	if e.oneLine {
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Errors are all faults of an expression, by place.
type Errors []Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "; ")
}

func isOneLine(text string) bool { return !strings.Contains(strings.TrimSpace(text), "\n") }

func errorsOf(text string, found []*cel.Error, names []string) Errors {
	errs := make(Errors, 0, len(found))
	for _, f := range found {
		errs = append(errs, Error{
			Line: max(1, f.Location.Line()), Column: max(1, f.Location.Column()+1), Reason: plain(f.Message, names), oneLine: isOneLine(text),
		})
	}
	slices.SortStableFunc(errs, func(a, b Error) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	// After one syntax error, the parser reports others as a consequence.
	if strings.HasPrefix(errs[0].Reason, "syntax error") {
		errs = errs[:1]
	}
	return errs
}

// plain rewords cel-go's message in this program's style.
func plain(message string, names []string) string {
	message, _, _ = strings.Cut(message, " expecting {") // dozens of tokens
	message = strings.Replace(message, " (in container '')", "", 1)
	message = strings.Replace(message, "<EOF>", "the end", 1)
	if rest, ok := strings.CutPrefix(message, "Syntax error: "); ok {
		message = "syntax error: " + rest
	}
	if strings.HasPrefix(message, "undeclared reference") && !strings.Contains(message, "did you mean") {
		message += "; the names are " + strings.Join(names, ", ")
	}
	return message
}
