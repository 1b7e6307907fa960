// Package match tells whether something is chosen: a name by a pattern, and an event by an
// expression of the Common Expression Language (https://cel.dev) over its attributes and body.
// [Names] lists the variables of an expression.
//
// Expressions come from the operator, bodies from strangers: the work of an evaluation is
// bounded for any body, and errors hold nothing of a body.
package match

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// maxCost bounds one evaluation, in cel-go's units: about one for an operation, or for
// ten bytes of searched text. An evaluation takes some tenths of a second at most.
const maxCost = 1_000_000

// Variables gives an expression the value of each variable at its first use: a string,
// time.Time, map[string]any, or a result of [Decode]. Parent is nil.
type Variables = cel.Activation

// Condition is a compiled expression. Several goroutines may use it.
type Condition struct {
	text    string
	checked *cel.Ast
	program cel.Program
}

// Names are the variables of an expression, in the order of the documentation.
func Names() []string {
	return []string{"id", "source", "type", "subject", "project", "environment", "time", "received", "labels", "body", "raw"}
}

// notTexts are the types of the variables that are not texts.
var notTexts = map[string]*cel.Type{
	"time": cel.TimestampType, "received": cel.TimestampType, "body": cel.DynType,
	"labels": cel.MapType(cel.StringType, cel.ListType(cel.StringType)),
}

func variables() []cel.EnvOption {
	var vars []cel.EnvOption
	for _, name := range Names() {
		vars = append(vars, cel.Variable(name, cmp.Or(notTexts[name], cel.StringType)))
	}
	return vars
}

// Compile compiles text, an expression of type bool over an event. Its error is an [Errors].
func Compile(text string) (*Condition, error) { return compile(text, variables(), Names()) }

func compile(text string, variables []cel.EnvOption, names []string) (*Condition, error) {
	env, err := cel.NewEnv(append(variables,
		cel.CustomTypeAdapter(newAdapter()),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
	)...)
	if err != nil {
		return nil, fmt.Errorf("make the environment of expressions: %w", err)
	}
	checked, issues := env.Compile(text)
	if found := issues.Errors(); len(found) > 0 {
		return nil, errorsOf(text, found, names)
	}
	if got := checked.OutputType(); !got.IsExactType(cel.BoolType) {
		return nil, Errors{{Line: 1, Column: 1, Reason: notBool(got), oneLine: isOneLine(text)}}
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil {
		return nil, Errors{{Line: 1, Column: 1, Reason: err.Error(), oneLine: isOneLine(text)}}
	}
	return &Condition{text: text, checked: checked, program: program}, nil
}

func notBool(got *cel.Type) string {
	if got.IsExactType(cel.DynType) {
		return "it may be of any type, and must be true or false: compare it, as in body.flag == true"
	}
	return fmt.Sprintf("it is of the type %s, and must be true or false", got)
}

// String returns the compiled text.
func (c *Condition) String() string { return c.text }

// Holds evaluates the condition. It fails on a missing key, on values of the wrong types,
// and on too much work. The error names the place in the expression, and holds nothing of
// the event.
func (c *Condition) Holds(vars Variables) (bool, error) {
	out, _, err := c.program.Eval(vars)
	if err != nil {
		return false, c.failure(err)
	}
	return out == types.True, nil
}

// failure tells where and why an evaluation failed. It does not use cel-go's text, as
// that may hold values of the event.
func (c *Condition) failure(err error) error {
	text := "an operation failed on the values"
	var cancelled interpreter.EvalCancelledError
	switch said := err.Error(); {
	case errors.As(err, &cancelled):
		text = fmt.Sprintf("it takes more work than %d units", maxCost)
	case strings.HasPrefix(said, "no such key"):
		text = "there is no such key; test for it with has()"
	case strings.HasPrefix(said, "no such overload"):
		text = "this operation does not take values of these types"
	}
	var at *types.Err
	if errors.As(err, &at) && at.NodeID() != 0 {
		place := c.checked.NativeRep().SourceInfo().GetStartLocation(at.NodeID())
		return Error{Line: place.Line(), Column: place.Column() + 1, Reason: text, oneLine: isOneLine(c.text)}
	}
	return errors.New(text)
}

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
