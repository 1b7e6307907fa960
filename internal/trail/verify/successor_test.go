package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// rotatedTrail is a trail of three generations: the last entry of each but the newest one
// names the key of the next. logs are its logs, and all their entries.
func rotatedTrail(t *testing.T) (logs []*testLog, entries [][][]byte) {
	t.Helper()
	secrets := []string{"example.com/log", "the second secret", "the third secret"}
	var before Log
	for i, secret := range secrets {
		name, base := "example.com/log", before.Base+before.Size
		all := records(int(base), int(base)+5)
		if i > 0 {
			name = fmt.Sprintf("example.com/log/from-%d", base)
			previous := audit.Generation{Base: before.Base, Origin: before.Origin, Size: before.Size, Root: before.Root}
			all[0] = entryOf(t, audit.TypeGeneration, map[string]any{"previous": previous})
		}
		if i+1 < len(secrets) {
			all = append(all, entryOf(t, audit.TypeRotated, map[string]string{"key": renamedKey(t, secrets[i+1], "example.com/log").verifier}))
		}
		l := newTestLog(t, name, base)
		l.key, l.seq = renamedKey(t, secret, name), i
		l.add(t, all...)
		l.sign(t)
		before = check(t, l.write(t), Options{}).Logs[0]
		before.Base = base
		logs, entries = append(logs, l), append(entries, all)
	}
	return logs, entries
}

// The last signed entry of a generation that ended with a rotation names the key of the
// next one. Without that next one, completeness is not shown, however sound the rest is.
func TestAGenerationDeletedAfterARotationIsMissed(t *testing.T) {
	t.Parallel()
	logs, entries := rotatedTrail(t)
	o := Options{Policy: policy(t, 0, logs[0].key.verifier)}
	f, bodies := files{}, [][]byte{}
	for n, l := range logs {
		for name, data := range l.files {
			f[fmt.Sprintf("%d/%s", n, name)] = data
		}
		bodies = append(append(bodies, eventsOf(t, l, entries[n])...), checkpointBody(t, l.newest))
		r, err := Trail(t.Context(), f.fetch, []string{"0", "1", "2"}[:n+1], o)
		require.NoError(t, err)
		copied := checkEvents(t, o, bodies...)
		require.Empty(t, append(r.Integrity.Findings, copied.Integrity.Findings...))
		if n == len(logs)-1 {
			sound(t, r)
			sound(t, copied)
			continue
		}
		last := l.base + int64(len(l.leaves)) - 1
		for _, r := range []Report{r, copied} {
			require.Len(t, r.Completeness.Findings, 1)
			assert.Contains(t, r.Completeness.Findings[0].String(),
				fmt.Sprintf("missing: entry %d, the last signed one, names the key %s of the next generation", last, renamedKey(t, []string{"the second secret", "the third secret"}[n], "example.com/log").verifier))
		}
	}
}

// The log of a stopped relay has what its files have. A log that is missing among the
// files, or an older one put back there, is named.
func TestTheFilesAreHeldAgainstTheLog(t *testing.T) {
	t.Parallel()
	made := func() Report {
		return Report{Trusted: true, Entries: 6, Logs: []Log{{Origin: "a", Key: "k", Size: 6}}, Integrity: Verdict{Holds: true}, Completeness: Verdict{Holds: true}}
	}
	generation := func(origin string, base, size int64) audit.Generation {
		return audit.Generation{Origin: origin, PublicKey: "k", Base: base, Size: size}
	}
	for name, c := range map[string]struct {
		kept    audit.Report
		finding string
		entries int64
	}{
		"alike":     {audit.Report{Entries: 6, Signed: 6, Generations: []audit.Generation{generation("a", 0, 6)}}, "", 6},
		"older":     {audit.Report{Entries: 9, Signed: 9, Generations: []audit.Generation{generation("a", 0, 9)}}, "missing: entries 6 to 8: tlog: ", 9},
		"deleted":   {audit.Report{Entries: 9, Signed: 9, Generations: []audit.Generation{generation("a", 0, 6), generation("a/from-6", 6, 3)}}, "missing: entries 6 to 8: tlog: ", 9},
		"not begun": {audit.Report{Entries: 6, Signed: 6, Generations: []audit.Generation{generation("a", 0, 6), generation("a/from-6", 6, 0)}}, "", 6},
		"unsigned":  {audit.Report{Entries: 7, Signed: 6, Generations: []audit.Generation{generation("a", 0, 6)}}, "unsigned: entry 6: the trail's log: ", 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := made()
			r.addNewer(c.kept, Options{})
			r.close()
			assert.True(t, r.Integrity.Holds)
			assert.Equal(t, c.entries, r.Entries)
			assert.Equal(t, c.finding == "", r.Completeness.Holds)
			text := strings.Join(texts(r.Completeness), "\n")
			assert.True(t, strings.HasPrefix(text, c.finding), text)
		})
	}
}

// Until a generation's first checkpoint is delivered, nobody knows its key: that accuses nobody.
func TestAGenerationWithoutItsFirstCheckpointIsNotForged(t *testing.T) {
	t.Parallel()
	logs, entries := rotatedTrail(t)
	var lines [][]byte
	for n, l := range logs {
		bodies := eventsOf(t, l, entries[n])
		if n+1 < len(logs) {
			bodies = append(bodies, checkpointBody(t, l.newest))
		}
		for _, body := range bodies {
			lines = append(lines, cloudEvent(deliveredBody(t, l, body)))
		}
	}
	r := checkEvents(t, Options{Policy: policy(t, 0, logs[0].key.verifier)}, lines...)
	require.Empty(t, texts(r.Integrity))
	assert.Contains(t, strings.Join(texts(r.Completeness), "\n"), "unsigned: entries 12 to 16: ")
}
