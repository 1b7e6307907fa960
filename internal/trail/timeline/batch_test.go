package timeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func batchOf(lines ...line) []byte {
	return new(table).encode(map[string]uint16{}, lines, 7, [32]byte{1})
}

func TestBatchesKeepTheirRows(t *testing.T) {
	t.Parallel()
	long := make([]byte, 3*maxSummary)
	for i := range long {
		long[i] = "ä"[i%2]
	}
	batch := batchOf(
		line{time: at(0), kind: "settings.changed", project: "acme", subject: "rbac_policy", severity: 3, direction: 4, flags: isState | needsReview, text: textOf(string(long), "")},
		line{flags: isMissing},
		line{time: at(1), kind: TypeAnnotated, flags: isAnnotation, reviews: 0},
	)
	var back table
	newest, leaf, err := back.apply(batch, 100)
	require.NoError(t, err)
	assert.Equal(t, []any{int64(7), [32]byte{1}, int64(3)}, []any{newest, leaf, back.n})
	assert.Equal(t, "high", back.show(0).Severity)
	assert.True(t, back.show(0).Reviewed)
	assert.True(t, back.show(1).Missing)
	text := batch[back.at(0).Text-100:][:back.at(0).Length]
	assert.LessOrEqual(t, len(text), maxSummary)
	assert.Contains(t, string(text), "ä…", "cut between two letters")

	_, _, err = back.apply(batch, 100)
	require.ErrorIs(t, err, errBatch, "it is not for a table with rows")
}

func FuzzBatch(f *testing.F) {
	f.Add(batchOf(line{time: at(0), kind: "a", text: "b"}, line{flags: isMissing}, line{flags: isAnnotation, reviews: 0}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, batch []byte) {
		var made table
		if _, _, err := made.apply(batch, 0); err != nil {
			require.ErrorIs(t, err, errBatch)
			return
		}
		for index := range made.n {
			made.show(index)
			require.LessOrEqual(t, made.at(index).Text+int64(made.at(index).Length), int64(len(batch)))
		}
	})
}
