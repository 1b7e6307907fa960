package timeline

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

func TestTheStateAtATime(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	live := Where{Project: "acme", Environment: "live", Setting: "password_strength_config"}
	for _, c := range []struct {
		name        string
		minute      int
		value, next int // minimum lengths; 0: none
		uncertain   bool
		seen        int
	}{
		{"before the first look", -1, 0, 8, false, -1},
		{"at the first look", 0, 8, 12, false, 10},
		{"before the window", 5, 8, 12, false, 10},
		{"at the window's begin, which is not in it", 10, 8, 12, false, 10},
		{"in the window", 15, 8, 12, true, 10},
		{"at the look that found it", 20, 12, 6, false, 30},
		{"in the next window", 39, 12, 6, true, 30},
		{"after the last change", 45, 6, 0, false, 49},
		{"after the last check", 500, 6, 0, false, 49},
	} {
		s, err := v.At(t.Context(), live, at(c.minute))
		require.NoError(t, err)
		assert.Equal(t, c.value > 0, s.Known, c.name)
		assert.Equal(t, lengthOf(c.value), string(s.Value), c.name)
		assert.Equal(t, c.uncertain, s.Uncertain, c.name)
		if c.seen >= 0 {
			assert.Equal(t, at(c.seen), s.Seen.UTC(), c.name)
		}
		if assert.Equal(t, c.next > 0, s.Next != nil, c.name) && s.Next != nil {
			assert.Equal(t, lengthOf(c.next), string(s.Next.Value), c.name)
		}
	}
}

func lengthOf(n int) string {
	if n == 0 {
		return ""
	}
	return string(policy(n))
}

func TestASettingIsNamedClearly(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	_, err := v.At(t.Context(), Where{Setting: "password_strength_config"}, at(0))
	require.ErrorIs(t, err, ErrSeveral)
	require.NotErrorIs(t, err, ErrSetting)
	require.ErrorContains(t, err, "name one by --project and --environment")
	_, err = v.At(t.Context(), Where{Setting: "colour"}, at(0))
	require.ErrorContains(t, err, "the trail has no state of colour")
	s, err := v.At(t.Context(), Where{Setting: "password_strength_config", Environment: "test"}, at(40))
	require.NoError(t, err)
	assert.Equal(t, Where{"acme", "test", "password_strength_config"}, s.Where)

	all, err := v.Settings(t.Context(), Filter{})
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, []any{"live", 3, 2, int64(3)}, []any{all[0].Environment, all[0].States, all[0].Changes, all[0].Last.Index})
	assert.Equal(t, "minimum password length 12 → 6", all[0].Last.Summary)
}

func TestASettingThatIsGone(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	add(t, trail, audit.Entry{
		Type: "settings.gone", Project: "acme", Environment: "live", Subject: "rbac_policy", Time: at(80),
		Before: json.RawMessage(`{}`), Window: &audit.Window{After: at(79), Until: at(80)},
	})
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	s, err := v.At(t.Context(), Where{Setting: "rbac_policy"}, at(81))
	require.NoError(t, err)
	assert.True(t, s.Known)
	assert.Nil(t, s.Value, "it is not there any more")
}

// partly is a real trail, read back with findings: one entry is unlike the signed one, and
// one is lost.
type partly struct {
	*audit.Trail
	unsound, lost int64
}

func (p partly) Get(ctx context.Context, index int64) (audit.Recorded, error) {
	if index == p.lost {
		return audit.Recorded{}, audit.ErrMissing
	}
	e, err := p.Trail.Get(ctx, index)
	e.Unsound = index == p.unsound
	return e, err
}

func TestADamagedStateIsPassedOver(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail) // the states of live: 0, 1 and 3
	live := Where{Environment: "live", Setting: "password_strength_config"}
	for name, damaged := range map[string]partly{"unsound": {trail, 1, -1}, "lost": {trail, -1, 1}} {
		v, _ := keep(t, filepath.Join(t.TempDir(), FileName), damaged)
		s, err := v.At(t.Context(), live, at(25))
		require.NoError(t, err)
		assert.Equal(t, lengthOf(8), string(s.Value), "%s: the state before it", name)
		require.Len(t, s.Notes, 1, name)
		assert.Contains(t, s.Notes[0], "entry 1 is damaged or lost")
		s, err = v.At(t.Context(), live, at(5))
		require.NoError(t, err)
		assert.Nil(t, s.Next, name)
		assert.Contains(t, s.Notes[0], "how long this state stood is not known", name)
	}
}

func TestAnEnvironmentThatWasGone(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	about := audit.Entry{Type: "environment.gone", Project: "acme", Environment: "live", Subject: "environment", Time: at(100)}
	back := about
	back.Type, back.Time = "environment.back", at(110)
	add(t, trail, about, back)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	for minute, gone := range map[int]bool{99: false, 100: true, 109: true, 110: false} {
		s, err := v.At(t.Context(), Where{Environment: "live", Setting: "password_strength_config"}, at(minute))
		require.NoError(t, err)
		assert.Equal(t, lengthOf(6), string(s.Value))
		assert.Equal(t, gone, len(s.Notes) == 1, "minute %d: %v", minute, s.Notes)
	}
}

// A look is the last one only if it saw the state shown, and the newest attestation may be
// one of failed looks.
func TestWhichLooksConfirmAState(t *testing.T) {
	t.Parallel()
	check := func(kind, subject string, detail json.RawMessage) audit.Entry {
		return audit.Entry{Type: kind, Project: "acme", Environment: "live", Subject: subject, Time: at(100), Detail: detail}
	}
	failed := json.RawMessage(`{"resources":{"password_strength_config":{"failures":3},"rbac_policy":{"last_look":"2026-03-01T09:30:00Z","sha256":"5e1f"}}}`)
	trail := trailtest.New(t)
	scene(t, trail) // the look of minute 49 is attested
	streaming := audit.Entry{Type: "streaming.baseline", Project: "acme", Environment: "live", Subject: "event_log_streaming", Time: at(61), After: policy(1)}
	none := streaming
	none.Subject, none.After = "event_log_streaming_second", nil
	add(t, trail,
		check("settings.checked", "settings_checks", checked("password_strength_config", 70, policy(9))),
		check("settings.checked", "settings_checks", failed),
		streaming, none,
		check("streaming.checked", "event_log_streaming_checks", checked("event_log_streaming", 71, policy(1))),
		check("streaming.checked", "event_log_streaming_checks", json.RawMessage(`{"resources":{"event_log_streaming_second":{"last_look":"2026-03-01T09:12:00Z"}}}`)),
	)
	v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
	for setting, minute := range map[string]int{"password_strength_config": 49, "event_log_streaming": 71, "event_log_streaming_second": 72} {
		s, err := v.At(t.Context(), Where{Environment: "live", Setting: setting}, at(200))
		require.NoError(t, err)
		assert.Equal(t, at(minute), s.Seen.UTC(), setting)
	}
}

// What a running relay saw last counts before it is attested, and only if it saw this state.
func TestARunningRelaysLookConfirmsAState(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	scene(t, trail)
	live := Where{Project: "acme", Environment: "live", Setting: "password_strength_config"}
	for name, c := range map[string]struct{ look, length, seen int }{
		"this state": {90, 6, 90}, "another state": {90, 7, 49}, "before the attested look": {45, 6, 49},
	} {
		v, _ := keep(t, filepath.Join(t.TempDir(), FileName), trail)
		v.looked = func(w Where) (time.Time, string) {
			assert.Equal(t, live, w, "the whole name, though a part of it was asked for")
			return at(c.look), jsontext.Hash(policy(c.length))
		}
		s, err := v.At(t.Context(), Where{Environment: "live", Setting: live.Setting}, at(200))
		require.NoError(t, err)
		assert.Equal(t, at(c.seen), s.Seen.UTC(), name)
		s, err = v.At(t.Context(), live, at(25))
		require.NoError(t, err)
		assert.Equal(t, at(30), s.Seen.UTC(), "%s: an earlier state was not seen by it", name)
	}
}
