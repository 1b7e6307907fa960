// Package condition compiles and evaluates expressions of the Common Expression
// Language (https://cel.dev) over one event's attributes and body. What an
// expression may name, and of which type it is, stands in [Names].
//
// Bodies come from outside, expressions from the operator: evaluation takes
// bounded work, whatever the body, and its errors hold nothing of it.
package condition

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/interpreter"
)

// maxCost bounds one evaluation, in cel-go's units: about one for an operation,
// or for ten bytes of a text that is searched. It is some tenths of a second.
const maxCost = 1_000_000

// Variables gives an expression the values of the names that it uses, each when
// it is first needed: strings, time.Time, map[string]any, and what [Decode]
// returns. Parent is nil.
type Variables = cel.Activation

// Condition is a compiled expression. It may be used by several goroutines.
type Condition struct {
	text    string
	checked *cel.Ast
	program cel.Program
}

// Names are what an expression may name, in the order of the documentation.
func Names() []string {
	return []string{"id", "source", "type", "subject", "project", "environment", "time", "received", "labels", "body", "raw"}
}

func variables() []cel.EnvOption {
	var vars []cel.EnvOption
	for _, name := range Names() {
		kind := cel.StringType
		switch name {
		case "time", "received":
			kind = cel.TimestampType
		case "labels":
			kind = cel.MapType(cel.StringType, cel.ListType(cel.StringType))
		case "body":
			kind = cel.DynType
		}
		vars = append(vars, cel.Variable(name, kind))
	}
	return vars
}

// Compile checks text, which has to be true or false by its type. Its error is
// an [Errors].
func Compile(text string) (*Condition, error) {
	env, err := cel.NewEnv(append(variables(),
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
		return nil, errorsOf(text, found)
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

// String is the expression as it was compiled.
func (c *Condition) String() string { return c.text }

// Holds evaluates the condition. An error says that it cannot be told: a key
// that is not there, an operation on values of the wrong types, too much work.
// It names the place in the expression, and holds nothing of the event.
func (c *Condition) Holds(vars Variables) (bool, error) {
	out, _, err := c.program.Eval(vars)
	if err != nil {
		return false, c.failure(err)
	}
	return out == types.True, nil
}

// failure tells where and why an evaluation failed. cel-go's own text may hold
// values of the event.
func (c *Condition) failure(err error) error {
	text := "an operation failed on what the event holds"
	var cancelled interpreter.EvalCancelledError
	switch said := err.Error(); {
	case errors.As(err, &cancelled):
		text = fmt.Sprintf("it takes more work than %d units", maxCost)
	case strings.HasPrefix(said, "no such key"):
		text = "there is no such key; test for it with has()"
	case strings.HasPrefix(said, "no such overload"):
		text = "the values are of types that this operation does not take"
	}
	var at *types.Err
	if errors.As(err, &at) && at.NodeID() != 0 {
		place := c.checked.NativeRep().SourceInfo().GetStartLocation(at.NodeID())
		return Error{Line: place.Line(), Column: place.Column() + 1, Reason: text, oneLine: isOneLine(c.text)}
	}
	return errors.New(text)
}
