package workspace

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

func FuzzPlausible(f *testing.F) {
	for _, seed := range []string{`{"project_slug":"a","name":"b"}`, `[]`, `["DE"]`, `[{}]`, `{"validation_policy":"LUDS"}`, `null`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, kind := range kinds.All() {
			if kind.Each != nil {
				continue
			}
			got := reading{raw: raw}
			if state, err := got.state(kind); err == nil {
				require.True(t, json.Valid(state.JSON))
				require.NotEqual(t, "null", string(state.JSON))
			}
		}
	})
}
