package match

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/interpreter"
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
	return stateVariables{"state": withoutNulls(Decode(state)), "project": project, "environment": environment}
}

type stateVariables map[string]any

// ResolveName implements interpreter.Activation.
func (v stateVariables) ResolveName(name string) (any, bool) { value, is := v[name]; return value, is }

// Parent implements interpreter.Activation.
func (v stateVariables) Parent() interpreter.Activation { return nil }

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
