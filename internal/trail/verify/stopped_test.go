package verify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
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

// A relay that is killed soon after its first start, or soon after a rotation of its key, leaves a folder with the
// first files of a log, and at most a part of a line about its checkpoint.
func TestAFolderThatTheRelayWasKilledInIsNoDamage(t *testing.T) {
	t.Parallel()
	const missing = "missing: entries 0 to 4: tlog: the trail's log has them, and its files do not: the relay was killed before it wrote them, or files were deleted, or older ones put in their place; the next start writes them again"
	trusted := newKey(t, "example.com/trail").verifier
	kept := audit.Report{
		Entries: 5, Signed: 5, Checkpoints: 1,
		Generations: []audit.Generation{{Origin: "example.com/trail", PublicKey: trusted, Size: 5, Root: tlog.RecordHash([]byte("root"))}},
	}
	for history, want := range map[string][]string{
		"":             nil,
		`{"seq":1,"ke`: nil,
		"no line\n":    {"checkpoint: 0: no checkpoint can be read, of the file and of the history"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "0", "tile"), 0o700))
		if history != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "0", proof.HistoryFile), []byte(history), 0o600))
		}
		r, err := Stopped(t.Context(), dir, kept, nil, Options{Policy: policy(t, 0, trusted)})
		require.NoError(t, err)
		require.Equal(t, want, texts(r.Integrity), history)
		require.Equal(t, []string{missing}, texts(r.Completeness))
		require.EqualValues(t, 5, r.Entries)
	}
}

// Without the files, a checkpoint from elsewhere is held against nothing, and the report says so.
func TestAKnownCheckpointWithoutFilesIsNotPassedOver(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/trail", 0)
	l.add(t, records(0, 3)...)
	l.sign(t)
	r, err := Stopped(t.Context(), t.TempDir(), audit.Report{}, nil, Options{Known: [][]byte{l.newest}})
	require.NoError(t, err)
	require.Equal(t, []string{
		`checkpoint: a checkpoint known from elsewhere, of the log "example.com/trail", is held against nothing, as the trail's files are gone; the next start writes them again`,
	}, texts(r.Completeness))
}
