package meaning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const matrixBefore = `{"custom_resources":[{"resource_id":"documents","available_actions":["read","write","delete"]},{"resource_id":"quiet","available_actions":["read"]}],
"custom_roles":[{"role_id":"editor","permissions":[{"resource_id":"documents","actions":["read","write"]},{"resource_id":"quiet","actions":["read"]}]},
{"role_id":"reader","permissions":[{"resource_id":"documents","actions":["read"]}]}]}`

func TestAMatrixShowsWhatWasGainedAndLost(t *testing.T) {
	t.Parallel()
	after := strings.Replace(matrixBefore, `"actions":["read","write"]`, `"actions":["*"]`, 1)
	after = strings.Replace(after, `"actions":["read"]}]}]}`, `"actions":["print"]}]}]}`, 1)
	m, err := PermissionMatrix(json.RawMessage(matrixBefore), json.RawMessage(after))
	require.NoError(t, err)
	require.Len(t, m.Tables, 2)
	documents := m.Tables[0]
	assert.Equal(t, "documents", documents.Resource)
	assert.Equal(t, []string{"*", "delete", "print", "read", "write"}, documents.Actions)
	assert.Equal(t, []MatrixRow{
		{"role editor", []Cell{CellGained, CellGained, CellPerhaps, CellKept, CellKept}},
		{"role reader", []Cell{CellNone, CellNone, CellPerhaps, CellLost, CellNone}},
	}, documents.Rows)
	assert.Equal(t, 2, documents.Gained)
	assert.Equal(t, 1, documents.Lost)
	assert.Equal(t, "quiet", m.Tables[1].Resource, "a resource without a difference stands before one with")

	m, err = PermissionMatrix(nil, json.RawMessage(matrixBefore))
	require.NoError(t, err)
	assert.Equal(t, 3, m.Tables[0].Gained)
}

func TestAMatrixIsBounded(t *testing.T) {
	t.Parallel()
	var roles []string
	for i := range 1000 {
		roles = append(roles, fmt.Sprintf(`{"role_id":"r%d","permissions":[{"resource_id":"d%d","actions":["a","%s"]}]}`, i, i%300, strings.Repeat("x", 10_000)))
	}
	m, err := PermissionMatrix(nil, json.RawMessage(`{"custom_roles":[`+strings.Join(roles, ",")+`]}`))
	require.NoError(t, err)
	assert.Len(t, m.Tables, maxTables)
	assert.Positive(t, m.Omitted)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	assert.Less(t, len(text), 1<<20)
}
