package timeline

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func TestARowHas32Bytes(t *testing.T) {
	t.Parallel()
	assert.EqualValues(t, 32, unsafe.Sizeof(row{}), "as the package says")
}

// Every entry says who did it, and can be found by it.
func TestWhoIsListedAndFound(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	told := func(e audit.Entry, detail string) audit.Entry { e.Detail = json.RawMessage(detail); return e }
	act := audit.Entry{Type: "action.ended", Project: "acme", Subject: "workspace_actions/project.rename", Time: at(1)}
	add(t, trail,
		change(0, 0, 8), // a baseline: nobody's
		told(act, `{"operation":"project.rename","outcome":"done","person":{"user":"root","host":"relay-1","uid":0,"claimed":"ada@laptop"}}`),
		told(change(2, 8, 12), `{"summary":"s","cause":"relay","actor":"root@relay-1 (claims ada@laptop)"}`),
		told(change(3, 12, 9), `{"summary":"s","cause":"outside","actor":"unknown"}`),
		told(change(4, 9, 8), `{"summary":"s","cause":"relay","actor":"relay"}`),
		told(change(5, 8, 9), `{"summary":"s","cause":"relay","actor":"ada@relay-1, bob@relay-2"}`),
		change(6, 9, 10), // of an earlier version, without an actor
		told(audit.Entry{Type: "sink.retired", Project: "-", Subject: "sinks/old", Time: at(7)}, `{"person":{"user":"bob","host":"desk"}}`),
	)
	of, err := trail.Get(t.Context(), 3)
	require.NoError(t, err)
	note, err := Annotation{Reviewer: "eve", Person: audit.Person{User: "carl", Host: "relay-1", Claimed: "dora@x"}}.Entry(of)
	require.NoError(t, err)
	note.Time = at(8)
	add(t, trail, note)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	var who []string
	for _, r := range list(t, v, Filter{}) {
		who = append(who, r.Actor)
	}
	assert.Equal(t, []string{
		"", "root@relay-1 (claims ada@laptop)", "root@relay-1 (claims ada@laptop)", "unknown", "relay",
		"ada@relay-1, bob@relay-2", "unknown", "bob@desk", "carl@relay-1 (claims dora@x)",
	}, who)
	for pattern, want := range map[string][]int64{
		"ada": {1, 2, 5}, "ada@laptop": {1, 2}, "root": {1, 2}, "root@*": {1, 2}, "bob": {5, 7}, "bob@relay-2": {5},
		"unknown": {3, 6}, "relay": {4}, "dora": {8}, "nobody": nil, "*claims*": {1, 2, 8}, "sms*": nil,
	} {
		assert.Equal(t, want, indices(list(t, v, Filter{Actor: pattern})), pattern)
	}
	assert.Equal(t, []int64{2}, indices(list(t, v, Filter{Actor: "ada", Type: "settings.*", Cause: "relay", Until: at(3)})))
	assert.Equal(t, []int64{1, 7}, indices(list(t, v, Filter{Type: "action.*,sink.retired"})))
}

// A change of the streaming status is a change: it wants a review, and it is counted.
func TestAStatusChangeIsAChange(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	e := audit.Entry{Type: "streaming.baseline", Project: "acme", Environment: "live", Subject: "event_log_streaming", Time: at(0), After: json.RawMessage(`{"streaming_status":"ACTIVE"}`)}
	degraded := e
	degraded.Type, degraded.Time, degraded.Before, degraded.After = "streaming.status_changed", at(1), e.After, json.RawMessage(`{"streaming_status":"DEGRADED"}`)
	degraded.Detail = json.RawMessage(`{"summary":"streaming status","severity":"high","direction":"weaker","cause":"outside"}`)
	add(t, trail, e, degraded)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	assert.Equal(t, []int64{1}, indices(list(t, v, Filter{Unreviewed: true})))
	all, err := v.Settings(t.Context(), Filter{})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, 1, all[0].Changes)
}

// Claims are free text. They never take the room of the other names.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	x := filled(t, 1, func(int) string { return "s" })
	for i := range maxActors {
		name := strconv.Itoa(i) + " claims"
		x.rows.name(name, maxNames)
	}
	x.rows.take(&line{time: at(1), names: [columns]string{ofKind: "new.kind", ofActor: "one more"}}, 0)
	assert.NotContains(t, x.rows.names, "one more")
	assert.Contains(t, x.rows.names, "new.kind")
}

// lossy is a real trail that lost some entries.
type lossy struct {
	*audit.Trail
	lost map[int64]bool
}

func (l lossy) Tail(ctx context.Context, from int64, handle func(audit.Recorded) error, caughtUp func(int64) error) error {
	return l.Trail.Tail(ctx, from, func(e audit.Recorded) error {
		if l.lost[e.Index] {
			return nil
		}
		return handle(e)
	}, caughtUp)
}

func (l lossy) Get(ctx context.Context, index int64) (audit.Recorded, error) {
	if l.lost[index] {
		return audit.Recorded{}, audit.ErrMissing
	}
	return l.Trail.Get(ctx, index)
}

// A lost entry has its row in one pass as well: whoever reads an export sees the hole.
func TestLostEntriesAreAmongTheWholeOnes(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	for name, lost := range map[string]map[int64]bool{"within": {2: true, 3: true}, "first": {0: true}} {
		l := lossy{trail, lost}
		v, _ := keep(t, filepath.Join(t.TempDir(), FileName), l)
		var got, missing []int64
		for _, e := range entries(t, v, Filter{}) {
			got = append(got, e.Index)
			if e.Missing {
				missing = append(missing, e.Index)
				assert.Equal(t, unreadableHere, e.Summary)
			}
		}
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5}, got, name)
		assert.Len(t, missing, len(lost), name)
		chosen := entries(t, v, Filter{Type: "settings.*"})
		for _, e := range chosen {
			assert.False(t, e.Missing, "a lost entry fits no choice")
		}
	}
}
