package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one error in a configuration, or a warning. It never contains a secret or a line
// of the file.
type Problem struct {
	// File is the configuration's name. It may be empty.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 if it is not known. A field that is missing has the line of its
	// section.
	Line int `json:"line,omitempty"`
	// Field is a path such as "sinks[1].kafka.brokers", with indices from 0. It is empty for
	// the whole file.
	Field string `json:"field,omitempty"`
	// Value is the value as it is written in the file, before ${NAME} is replaced. It is empty
	// if there is none, or if it is a secret.
	Value string `json:"value,omitempty"`
	// Default is set if Value is the field's default, which is not written in the file.
	Default bool `json:"default,omitempty"`
	// Reason says what is wrong, and how to correct it.
	Reason string `json:"reason"`
}

// String returns "FIELD: VALUE: REASON", without the place.
func (p Problem) String() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	if p.Value != "" {
		b.WriteString(strconv.Quote(p.Value))
		if p.Default {
			b.WriteString(" (the default)")
		}
		b.WriteString(": ")
	}
	return b.String() + p.Reason
}

// Errors has all errors of one configuration, in the order in which they appear there.
type Errors []Problem

// Error has one line per problem, below a heading.
func (e Errors) Error() string {
	var b strings.Builder
	if len(e) > 0 && e[0].File != "" {
		fmt.Fprintf(&b, "%s: ", e[0].File)
	}
	switch {
	case len(e) == 1:
		b.WriteString("1 error in the configuration")
	case len(e) > maxProblems:
		fmt.Fprintf(&b, "more than %d errors in the configuration", maxProblems)
	default:
		fmt.Fprintf(&b, "%d errors in the configuration", len(e))
	}
	for _, p := range e {
		b.WriteString("\n  ")
		if p.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", p.Line)
		}
		b.WriteString(p.String())
	}
	return b.String()
}

// maxProblems bounds the problems of a configuration that are shown.
const maxProblems = 1_000

// bounded appends p. One more than maxProblems stands for all that follow.
func bounded(problems []Problem, p Problem) []Problem {
	if len(problems) > maxProblems {
		return problems
	}
	return append(problems, p)
}

// inOrder sorts by line; within a line the order of discovery is kept. Of more than maxProblems
// it keeps the first ones, and a last one says so.
func inOrder(file string, problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	if len(problems) > maxProblems {
		problems = append(problems[:maxProblems], Problem{
			Reason: fmt.Sprintf("and more: only %d are shown; correct them, and check again", maxProblems),
		})
	}
	for i := range problems {
		problems[i].File = file
	}
	return problems
}
