package verify

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// entryOf is a canonical record.
func entryOf(t *testing.T, kind string, detail any) []byte {
	t.Helper()
	raw, err := json.Marshal(detail)
	require.NoError(t, err)
	text, err := json.Marshal(audit.Entry{Type: kind, Project: "acme", Environment: "live", Subject: "s", Time: day, Detail: raw})
	require.NoError(t, err)
	canonical, err := jsontext.Canonical(text)
	require.NoError(t, err)
	return canonical
}

func checkedAt(from, until time.Duration, seen int) workspace.Check {
	return workspace.Check{From: day.Add(from), Until: day.Add(until), Looks: 9, Resources: map[string]*workspace.Checked{
		"rbac_policy": {Every: "1h0m0s", Looks: seen}, "email": {Every: "4h0m0s", Looks: 3},
	}}
}

func completenessOf(t *testing.T, records ...[]byte) []string {
	t.Helper()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records...)
	l.sign(t)
	r := check(t, l.write(t), Options{Policy: policy(t, 0, l.key.verifier)})
	require.Empty(t, r.Integrity.Findings)
	return texts(r.Completeness)
}

func TestGapsInTheLooksAreNamed(t *testing.T) {
	t.Parallel()
	at := func(from, until time.Duration, seen int) []byte {
		return entryOf(t, settingsChecked, checkedAt(from, until, seen))
	}
	assert.Empty(t, completenessOf(t, at(0, 24*time.Hour, 24), record(1), at(25*time.Hour, 48*time.Hour, 9)))
	assert.Equal(t, []string{
		"looks: entry 1: acme/live: nobody looked between 2026-03-02T00:00:00Z and 2026-03-02T03:00:00Z",
		"looks: entry 2: acme/live: nobody saw rbac_policy between 2026-03-03T00:00:00Z and 2026-03-04T00:00:00Z",
	}, completenessOf(t, at(0, 24*time.Hour, 24), at(27*time.Hour, 48*time.Hour, 9), at(48*time.Hour, 72*time.Hour, 0)))
}

func TestLostEntriesAndNamedDamage(t *testing.T) {
	t.Parallel()
	damaged := map[string]any{"problems": []proof.Finding{{Kind: "altered", From: 1, To: 2, Detail: "x"}}}
	assert.Equal(t, []string{
		"named: entry 2 of the trail names damage: altered: entries 1 to 2: x",
		"lost: entry 1: it was lost before it was signed; the trail says so in its place",
	}, completenessOf(t, record(0), proof.LostLeaf(1), entryOf(t, audit.TypeDamaged, damaged)))
}

func spanAt(first, last uint64, previous *eventproof.Previous, missing ...eventproof.Missing) eventproof.Span {
	return eventproof.Span{First: first, Last: last, Previous: previous, Missing: missing}
}

func previousOf(t *testing.T, index int64, s eventproof.Span) *eventproof.Previous {
	t.Helper()
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	canonical, err := jsontext.Canonical(raw)
	require.NoError(t, err)
	return &eventproof.Previous{Index: index, SHA256: jsontext.Hash(canonical)}
}

func TestGapsBetweenSpansAreNamed(t *testing.T) {
	t.Parallel()
	one := spanAt(1, 10, nil)
	two := spanAt(11, 20, previousOf(t, 0, one))
	of := func(s eventproof.Span) []byte { return entryOf(t, eventproof.Type, s) }
	assert.Empty(t, completenessOf(t, of(one), record(0), of(two)))
	assert.Equal(t, []string{
		"span: entry 1: no span covers the positions 11 to 12 of the event stream",
		"span: entry 1: the positions 14 to 15 of the event stream are under no root: lost",
		"span: entry 2: it names entry 0 as the span before it, which is entry 1, or another one",
	}, completenessOf(t, of(one), of(spanAt(13, 20, previousOf(t, 0, one), eventproof.Missing{From: 14, To: 15, Reason: "lost"})), of(two)))
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	c := func(now time.Time, beats ...time.Duration) []string {
		r := &Report{}
		c := newCompleteness(r)
		for i, b := range beats {
			c.pulse.Add(audit.Signing{Time: day.Add(b), Promised: i == 0, Within: time.Hour}, 0)
		}
		c.end(now)
		return texts(r.Completeness)
	}
	assert.Empty(t, c(day.Add(3*time.Hour), 0, time.Hour, 2*time.Hour))
	assert.Equal(t, []string{
		"heartbeat: from 2026-03-01T01:00:00Z to 2026-03-01T04:00:00Z: no heartbeat came, though the relay had not stopped",
		"heartbeat: from 2026-03-01T04:00:00Z to 2026-03-01T07:00:00Z: no heartbeat came, though the relay had not stopped",
	}, c(day.Add(7*time.Hour), 0, time.Hour, 4*time.Hour))
	r := &Report{}
	stopped := newCompleteness(r)
	stopped.pulse.Add(audit.Signing{Time: day, Promised: true, Within: time.Hour}, 0)
	stopped.pulse.Add(audit.Signing{Time: day, Promised: true}, 0) // the relay stops
	stopped.pulse.Add(audit.Signing{Time: day.Add(9 * time.Hour), Promised: true, Within: time.Hour}, 0)
	stopped.end(time.Time{})
	assert.Empty(t, texts(r.Completeness))
}

// Two generations: the second one's first entry names the first one.
func TestGenerationsAreChained(t *testing.T) {
	t.Parallel()
	first := newTestLog(t, "example.com/log", 0)
	first.add(t, records(0, 5)...)
	first.sign(t)
	sizes := check(t, first.write(t), Options{}).Logs[0]
	chained := func(previous audit.Generation) Report {
		second := newTestLog(t, "example.com/log/from-7", 7)
		second.seq = 1
		second.add(t, entryOf(t, audit.TypeGeneration, map[string]any{"previous": previous}), record(1))
		second.sign(t)
		f := files{}
		for n, l := range []*testLog{first, second} {
			for name, data := range l.write(t) {
				f[fmt.Sprintf("%d/%s", n, name)] = data
			}
		}
		r, err := Trail(t.Context(), f.fetch, []string{"0", "1"}, Options{Policy: policy(t, 0, first.key.verifier)})
		require.NoError(t, err)
		return r
	}
	good := audit.Generation{Origin: sizes.Origin, Size: sizes.Size, Root: sizes.Root}
	r := chained(good)
	assert.Empty(t, texts(r.Integrity))
	assert.Equal(t, []string{"unsigned: entries 5 to 6: no checkpoint covers them: the generation ended before"}, texts(r.Completeness))
	assert.EqualValues(t, 7, r.Entries)
	good.Size = 6
	assert.Equal(t, []string{`history: its first entry names a generation "example.com/log" of 6 entries before it; that one is "example.com/log", with 5 proven ones, or another root`},
		texts(chained(good).Integrity))
}

// The old key's generation names the new key in a signed entry; a stranger's key is named
// by nobody.
func TestARotatedKeyIsVouchedForByTheOldOne(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{true, false} {
		first, second := newTestLog(t, "example.com/log", 0), newTestLog(t, "example.com/log/from-6", 6)
		other := newKey(t, "example.com/other").verifier
		renamed, err := proof.Renamed(other, "example.com/log/from-6")
		require.NoError(t, err)
		second.key = renamedKey(t, "example.com/other", "example.com/log/from-6")
		require.Equal(t, renamed, second.key.verifier)
		first.add(t, records(0, 5)...)
		rotated := record(9)
		if named {
			rotated = entryOf(t, audit.TypeRotated, map[string]string{"key": other})
		}
		first.add(t, rotated)
		first.sign(t)
		before := check(t, first.write(t), Options{}).Logs[0]
		second.seq = 1
		second.add(t, entryOf(t, audit.TypeGeneration, map[string]any{"previous": audit.Generation{Origin: before.Origin, Size: before.Size, Root: before.Root}}))
		second.sign(t)
		f := files{}
		for n, l := range []*testLog{first, second} {
			for name, data := range l.write(t) {
				f[fmt.Sprintf("%d/%s", n, name)] = data
			}
		}
		r, err := Trail(t.Context(), f.fetch, []string{"0", "1"}, Options{Policy: policy(t, 0, first.key.verifier)})
		require.NoError(t, err)
		assert.Equal(t, named, r.Integrity.Holds, texts(r.Integrity))
		if named {
			assert.EqualValues(t, 7, r.Entries)
		}
	}
}

func TestWitnessesAreCounted(t *testing.T) {
	t.Parallel()
	l, w := newTestLog(t, "example.com/log", 0), newKey(t, "w.example")
	l.add(t, records(0, 5)...)
	l.sign(t)
	l.signers = []note.Signer{w.signers[1]}
	l.add(t, records(5, 7)...)
	l.sign(t)
	l.signers = nil
	o := Options{Policy: policy(t, 1, l.key.verifier, proof.Witness{Name: "w", Key: w.verifier})}
	r := check(t, l.write(t), o)
	sound(t, r)
	l.add(t, records(7, 9)...)
	l.sign(t)
	r = check(t, l.write(t), o)
	assert.Empty(t, texts(r.Integrity))
	assert.Equal(t, []string{"unwitnessed: entries 7 to 8: no checkpoint over them has the cosignatures that the policy asks for"}, texts(r.Completeness))

	alone := newTestLog(t, "example.com/log", 0)
	alone.add(t, records(0, 5)...)
	alone.sign(t)
	assert.Equal(t, []string{"quorum: no checkpoint has the cosignatures that the policy asks for"}, texts(check(t, alone.write(t), o).Integrity))
}

func TestWithoutAKeyOnlyConsistencyIsShown(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	r := check(t, l.write(t), Options{})
	sound(t, r)
	assert.False(t, r.Trusted)
	f := l.files.clone()
	f["tile/entries/000"] = flipped(f["tile/entries/000"], 9)
	assert.Equal(t, []string{"altered: entry 0: tile/entries/000: it does not have the hash that was signed"}, texts(check(t, f, Options{}).Integrity))
}
