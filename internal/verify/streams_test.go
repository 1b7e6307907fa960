package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/audit"
)

// The files may lag behind the streams by the last checkpoint, and a killed relay leaves
// entries that nothing covers.
func TestTheStreamsHaveMoreThanTheFiles(t *testing.T) {
	t.Parallel()
	root := tlog.RecordHash([]byte("newer"))
	streams := audit.Report{
		Entries: 7, Signed: 5,
		Generations: []audit.Generation{{Origin: "example.com/trail", PublicKey: "key", Size: 5, Root: root}},
	}
	r := Report{Entries: 3, Logs: []Log{{Origin: "example.com/trail", Key: "key", Size: 3}}}
	r.AddNewer(streams)
	require.EqualValues(t, 5, r.Entries)
	require.EqualValues(t, 5, r.Logs[0].Size)
	require.Equal(t, root, r.Logs[0].Root)
	require.False(t, r.Completeness.Holds)
	require.Len(t, r.Completeness.Findings, 1)
	require.Equal(t, NotCovered, r.Completeness.Findings[0].Kind)
	require.EqualValues(t, 5, r.Completeness.Findings[0].From)
	require.EqualValues(t, 6, r.Completeness.Findings[0].To)

	r = Report{Entries: 3, Logs: []Log{{Origin: "example.com/trail", Key: "another key", Size: 3}}}
	streams.Entries = 5
	r.AddNewer(streams)
	require.EqualValues(t, 3, r.Entries, "another key's checkpoint adds nothing")
	require.Empty(t, r.Completeness.Findings)
}
