package verify

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// A killed relay may leave files that have fewer entries than the log, and entries that no
// checkpoint covers.
func TestTheLogHasMoreThanTheFiles(t *testing.T) {
	t.Parallel()
	root := tlog.RecordHash([]byte("newer"))
	kept := audit.Report{
		Entries: 7, Signed: 5,
		Generations: []audit.Generation{{Origin: "example.com/trail", PublicKey: "key", Size: 5, Root: root}},
	}
	r := Report{Entries: 3, Logs: []Log{{Origin: "example.com/trail", Key: "key", Size: 3}}}
	r.addNewer(kept, Options{})
	r.close()
	require.EqualValues(t, 5, r.Entries)
	require.EqualValues(t, 5, r.Logs[0].Size)
	require.Equal(t, root, r.Logs[0].Root)
	require.False(t, r.Completeness.Holds)
	require.Equal(t, []string{
		"missing: entries 3 to 4: tlog: the trail's log has them, and its files do not: the relay was killed before it wrote them, or files were deleted, or older ones put in their place; the next start writes them again",
		"unsigned: entries 5 to 6: the trail's log: no checkpoint covers them yet; the relay signs them at its next start",
	}, texts(r.Completeness))

	trusted := newKey(t, "example.com/trail").verifier
	r = Report{Entries: 3, Logs: []Log{{Origin: "example.com/trail", Key: trusted, Size: 3}}}
	r.addNewer(kept, Options{Policy: policy(t, 0, trusted)})
	require.EqualValues(t, 3, r.Entries, "another key's checkpoint adds nothing")
	require.Equal(t, []string{"key: the trail's log: it is signed with the key key, not with the trusted one"}, texts(r.Integrity))
}
