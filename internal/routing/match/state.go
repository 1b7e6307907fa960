package match

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// CompileState compiles text, an expression of type bool over the state of a setting: it knows
// state, the JSON, and the texts project and environment. Its error is an [Errors].
func CompileState(text string) (*Condition, error) {
	return compile(text, []cel.EnvOption{
		cel.Variable("state", cel.DynType), cel.Variable("project", cel.StringType), cel.Variable("environment", cel.StringType),
	}, []string{"state", "project", "environment"})
}

// StateVariables are the values for a condition of [CompileState]. Members of the state that are
// null are left out, so that an expression need not tell null from missing.
func StateVariables(state []byte, project, environment string) Variables {
	vars, _ := cel.NewActivation(map[string]any{"state": withoutNulls(Decode(state)), "project": project, "environment": environment})
	return vars // of a map there is no error
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = withoutNulls(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}

// Decode returns the variable "body": nil for null and for invalid JSON. Objects are
// map[string]any, with the last of members of one name. Numbers are [json.Number].
// encoding/json bounds the depth at 10,000.
func Decode(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return v
}

// adapter converts results of [Decode] on first use, and leaves the rest to cel-go.
type adapter struct{ types.Adapter }

func newAdapter() adapter { return adapter{types.DefaultTypeAdapter} }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case json.Number:
		return number(v.String())
	}
	return a.Adapter.NativeToValue(value)
}

// number returns integers of up to 64 bits exactly, and all other numbers as the nearest
// double. CEL compares across the three types.
func number(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(n)
	}
	f, _ := strconv.ParseFloat(text, 64) // if too large ±Inf, and an error saying so
	return types.Double(f)
}
