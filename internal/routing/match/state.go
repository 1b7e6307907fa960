package match

import "cel.dev/cel-go/cel"

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
