package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

func TestBaselineThenChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		w := newWatcher(t, space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		require.Len(t, trail.of("settings.baseline"), len(projectKinds())+2*len(environmentKinds()))
		require.Equal(t, 1, space.reads[ofProject(EmailTemplates)], "a project is read once")
		defaults, found, err := trail.Last(t.Context(), "p", "", DefaultEmailTemplates)
		require.NoError(t, err)
		require.True(t, found)
		require.Contains(t, string(defaults.After), `"LOGIN":"t1"`)
		require.Contains(t, string(defaults.After), `"UNLOCK":null`)

		time.Sleep(time.Minute)
		agreed := time.Now()
		space.set(at(SMSCountryCodes, "live"), `["CA","US"]`) // reordered only
		require.NoError(t, w.Snapshot(t.Context()))
		require.Empty(t, trail.of("settings.changed"))

		time.Sleep(time.Minute)
		space.set(at(SMSCountryCodes, "live"), `["CA","DE"]`)
		for range 3 {
			require.NoError(t, w.Snapshot(t.Context()))
		}
		changed := trail.of("settings.changed")
		require.Len(t, changed, 1)
		require.Equal(t, "live", changed[0].Environment)
		require.JSONEq(t, `["US","CA"]`, string(changed[0].Before))
		require.JSONEq(t, `["CA","DE"]`, string(changed[0].After))
		require.True(t, agreed.Equal(changed[0].Window.After))
		require.True(t, agreed.Add(time.Minute).Equal(changed[0].Window.Until))
		require.Contains(t, string(changed[0].Detail), `"changes":[{"path":"","new":"DE"},{"path":"","old":"US"}]`)
	})
}

// TestRestart: a new process finds the change made in between, with the window from the
// last attested look.
func TestRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		ctx, cancel := context.WithCancel(t.Context())
		go newWatcher(t, space, trail).Run(ctx)
		time.Sleep(time.Hour + time.Second)
		cancel() // attests the looks
		synctest.Wait()
		checks := trail.of("settings.checked")
		require.Len(t, checks, 3)
		require.Equal(t, 13, CheckOf(checks[0]).Looks)

		time.Sleep(time.Hour)
		space.set(at(PasswordStrength, "test"), `{"validation_policy":"LUDS"}`)
		require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
		changed := trail.of("settings.changed")
		require.Len(t, changed, 1)
		require.Equal(t, time.Hour+time.Second, changed[0].Window.Until.Sub(changed[0].Window.After))
		require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
		require.Len(t, trail.of("settings.changed"), 1)
	})
}

func TestFailingTrail(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	space.set(at(SMSCountryCodes, "live"), `[]`)

	trail.refuse = errors.New("no quorum")
	require.ErrorContains(t, w.Snapshot(t.Context()), "no quorum")
	trail.refuse, trail.lose = nil, errors.New("timeout") // it is added, and nobody hears of it
	require.ErrorContains(t, w.Snapshot(t.Context()), "timeout")
	trail.lose = nil
	require.NoError(t, w.Snapshot(t.Context()))
	require.Len(t, trail.of("settings.changed"), 1)
}

// TestDamagedNewestEntry: a look is compared with the newest sound entry. A change with a
// lost entry is entered again. One there and back cannot be seen: the present state is
// entered once more, and the entry says so. Neither is done twice.
func TestDamagedNewestEntry(t *testing.T) {
	t.Parallel()
	for now, want := range map[string]string{`["DE"]`: "settings.changed", `["US","CA"]`: "settings.restated"} {
		space, trail := newWorkspace(), &memoryTrail{damaged: map[int64]bool{}}
		w := newWatcher(t, space, trail)
		require.NoError(t, w.Snapshot(t.Context()))
		space.set(at(SMSCountryCodes, "live"), `["DE"]`)
		require.NoError(t, w.Snapshot(t.Context()))
		trail.damaged[int64(len(trail.entries)-1)] = true
		space.set(at(SMSCountryCodes, "live"), now)
		before := len(trail.entries)
		for range 2 {
			require.NoError(t, w.Snapshot(t.Context()))
		}
		require.Len(t, trail.entries, before+11, "each of the 11 settings is entered once more")
		for _, e := range trail.entries[before:] {
			require.Contains(t, string(e.Detail), `"unsure":true`)
			if e.Subject == SMSCountryCodes && e.Environment == "live" {
				require.Equal(t, want, e.Type)
				require.JSONEq(t, `["US","CA"]`, string(e.Before))
				require.JSONEq(t, now, string(e.After))
			} else {
				require.Equal(t, "settings.restated", e.Type, "a false change")
			}
		}
	}
}

// TestTwoWatchers: another relay enters the same change after this one has
// compared, and before it appends.
func TestTwoWatchers(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	one, other := newWatcher(t, space, trail), newWatcher(t, space, trail)
	for _, codes := range []string{`["DE"]`, `["FR"]`} {
		space.set(at(SMSCountryCodes, "live"), codes)
		trail.between = func() { require.NoError(t, other.Snapshot(t.Context())) }
		require.NoError(t, one.Snapshot(t.Context()))
		require.Nil(t, trail.between)
	}
	require.Len(t, trail.of("settings.baseline"), 11)
	require.Len(t, trail.of("settings.changed"), 1)
}

// TestEntriesNameTheirReads: a change has the ids of the last look in agreement, and of
// the look with the change, after a restart too.
func TestEntriesNameTheirReads(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	ids := func(e audit.Entry) Requests {
		var d detail
		require.NoError(t, json.Unmarshal(e.Detail, &d))
		return d.Requests
	}
	require.NoError(t, w.Snapshot(t.Context()))
	codes := at(SMSCountryCodes, "live")
	baseline, _, err := trail.Last(t.Context(), "p", "live", codes.Kind)
	require.NoError(t, err)
	first := ids(baseline)
	require.Len(t, first.After, 1)
	require.Empty(t, first.Before)
	require.NoError(t, w.Snapshot(t.Context()))
	w.attestLast(t.Context(), w.groups[1])
	agreed := w.groups[1].watches[3].agreed.Requests
	require.NotEqual(t, first.After, agreed)

	space.set(codes, `["DE"]`)
	require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
	e := trail.of(typeSettingChanged)[0]
	require.Equal(t, agreed, ids(e).Before)
	require.Len(t, ids(e).After, 1)
	require.Contains(t, string(e.Detail), `{"cause":"outside","actor":"unknown","actor_reason":"the API names no actor of a change",`)
}

// TestAChangeIsTold: the entry and the log explain a change, and the log has no possible
// secret.
func TestAChangeIsTold(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	password := at(PasswordStrength, "live")
	config := func(length int) string {
		return fmt.Sprintf(`{"validation_policy":"LUDS","luds_min_password_length":%d,"luds_min_password_complexity":1,"later_token":"hunter%d"}`, length, length)
	}
	space.set(password, config(12))
	var logs bytes.Buffer
	o := space.options(t, trail, "live")
	o.Logger = slog.New(slog.NewTextHandler(&logs, nil))
	w := NewWatcher(o)
	require.NoError(t, w.Snapshot(t.Context()))
	require.NotContains(t, logs.String(), "a setting changed")
	space.set(password, config(8))
	require.NoError(t, w.Snapshot(t.Context()))
	var d detail
	require.NoError(t, json.Unmarshal(trail.of(typeSettingChanged)[0].Detail, &d))
	require.Len(t, d.Changes, 2, "the changes stand there as before")
	require.Len(t, d.Statements, 2)
	require.Equal(t, "minimum password length 12 → 8, and 1 more change", d.Summary)
	require.Equal(t, meaning.Weaker, d.Direction)
	require.Equal(t, meaning.High, d.Severity)
	require.Contains(t, logs.String(), `msg="a setting changed: minimum password length 12 → 8, and 1 more change"`)
	require.Contains(t, logs.String(), "direction=weaker severity=high")
	space.set(password, strings.Replace(config(8), "hunter8", "hunter9", 1))
	require.NoError(t, w.Snapshot(t.Context()))
	require.Contains(t, logs.String(), "`/later_token` changed; its value is not shown here")
	require.NotContains(t, logs.String(), "hunter")
}

func TestDefaultTemplateUnset(t *testing.T) {
	t.Parallel()
	space, trail := newWorkspace(), &memoryTrail{}
	w := newWatcher(t, space, trail)
	require.NoError(t, w.Snapshot(t.Context()))
	delete(space.state, defaultOf("LOGIN"))
	require.NoError(t, w.Snapshot(t.Context()))
	changed := trail.of("settings.changed")
	require.Len(t, changed, 1)
	require.Contains(t, string(changed[0].Detail), `{"path":"/LOGIN","old":"t1","new":null}`)
}

func TestChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWatcher(t, space, trail)
		start := time.Now()
		space.setFault(at(RBACPolicy, "live"), badAnswer{status: 500})
		go w.Run(ctx)
		time.Sleep(23 * time.Hour)
		require.Empty(t, trail.of("settings.checked"))
		time.Sleep(2 * time.Hour)
		checks := trail.of("settings.checked")
		require.Len(t, checks, 3)
		for _, e := range checks {
			c := CheckOf(e)
			require.Equal(t, checksSubject, e.Subject)
			require.Equal(t, 24*12+1, c.Looks)
			require.Equal(t, start.UTC(), c.From.UTC())
			require.Equal(t, 24*time.Hour, c.Until.Sub(c.From))
			if e.Environment == "live" {
				require.Equal(t, &Checked{Every: "5m0s", Failures: 24*12 + 1}, c.Resources[RBACPolicy])
				require.Equal(t, []string{"redirect URLs", "secrets", "public tokens", "who made a change"}, c.NotShown)
				continue
			}
			for kind, r := range c.Resources {
				last, _, _ := trail.Last(ctx, e.Project, e.Environment, kind)
				require.Equal(t, jsontext.Hash(last.After), r.SHA256)
				require.Equal(t, 24*12+1, r.Looks)
			}
		}
		time.Sleep(24 * time.Hour)
		require.Len(t, trail.of("settings.checked"), 6)
		require.Len(t, trail.of("settings.baseline", "settings.changed"), 10, "checks are in nobody's way")
		cancel()
		synctest.Wait()
	})
}

func TestDetailIsBounded(t *testing.T) {
	t.Parallel()
	var changes jsontext.Changes
	for range 2 * maxChanges {
		changes.List = append(changes.List, jsontext.Change{Path: "/x", Old: jsontext.Encode(strings.Repeat("ä", 10_000)), New: jsontext.Encode(make([]int, 10_000))})
	}
	d := detail{}.with(changes)
	require.Equal(t, maxChanges, d.Omitted)
	require.Contains(t, string(d.Changes[0].Old), "… (20000 bytes)")
	require.Equal(t, `"(20001 bytes of JSON)"`, string(d.Changes[0].New))
}

// An answer as before, to the byte, is not compared again, until somebody adds to the
// trail, or an hour has passed. Another relay's entry is found, though this one saw no
// change: there and back again are two.
func TestAnAnswerAsBeforeIsNotCompared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, trail := newWorkspace(), &memoryTrail{}
		w := newWatcher(t, space, trail)
		compared := func() int {
			before := trail.lasts
			require.NoError(t, w.Snapshot(t.Context()))
			return trail.lasts - before
		}
		for range 3 { // all groups see the entries of the first round
			compared()
		}
		require.Zero(t, compared())

		codes := at(SMSCountryCodes, "live")
		space.set(codes, `["US","CA","DE"]`)
		require.NoError(t, newWatcher(t, space, trail).Snapshot(t.Context()))
		space.set(codes, `["US","CA"]`)
		require.NotZero(t, compared())
		changes := trail.of(typeSettingChanged)
		require.Len(t, changes, 2)
		require.JSONEq(t, `["US","CA","DE"]`, string(changes[1].Before))
		require.JSONEq(t, `["US","CA"]`, string(changes[1].After))

		compared()
		require.Zero(t, compared())
		space.set(codes, ` ["US" , "CA"]`)
		require.Equal(t, 1, compared(), "other bytes are compared")
		require.Zero(t, compared())
		time.Sleep(compareEvery)
		require.NotZero(t, compared())
		require.Len(t, trail.of(typeSettingChanged), 2)
	})
}
