package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// Error is what is wrong at one place of an expression.
type Error struct {
	Line, Column int // from 1; columns count characters
	Reason       string

	oneLine bool // the line goes without saying
}

// Error gives "column 7: REASON", the line before it where there are several.
func (e Error) Error() string {
	if e.oneLine {
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Errors is all that is wrong with an expression, by place.
type Errors []Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "; ")
}

func isOneLine(text string) bool { return !strings.Contains(strings.TrimSpace(text), "\n") }

func errorsOf(text string, found []*cel.Error) Errors {
	errs := make(Errors, 0, len(found))
	for _, f := range found {
		errs = append(errs, Error{
			Line: max(1, f.Location.Line()), Column: max(1, f.Location.Column()+1), Reason: plain(f.Message), oneLine: isOneLine(text),
		})
	}
	slices.SortStableFunc(errs, func(a, b Error) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	// One slip of the pen makes the parser stumble on for a while.
	if strings.HasPrefix(errs[0].Reason, "syntax error") {
		errs = errs[:1]
	}
	return errs
}

// plain puts cel-go's text as this program speaks.
func plain(message string) string {
	message, _, _ = strings.Cut(message, " expecting {") // dozens of tokens
	message = strings.Replace(message, " (in container '')", "", 1)
	message = strings.Replace(message, "<EOF>", "the end", 1)
	if rest, ok := strings.CutPrefix(message, "Syntax error: "); ok {
		message = "syntax error: " + rest
	}
	if strings.HasPrefix(message, "undeclared reference") && !strings.Contains(message, "did you mean") {
		message += "; the names are " + strings.Join(Names(), ", ")
	}
	return message
}
