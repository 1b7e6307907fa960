package streaming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

var (
	toLoki    = &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "loki.example.com", Username: "u", Password: secret.New("loki-password-0001")}}
	toAnother = &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "b.example.com", Username: "u", Password: secret.New("loki-password-0002")}}
)

// breakAtPut makes the trail fail from the next PUT on, as after a crash at that line.
func (g *rig) breakAtPut() {
	g.api.set(func() {
		g.api.rewrite = func(map[string]string) { g.trail.breaks(errors.New("the process is gone")) }
	})
}

func (tr *trail) breaks(err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.broken = err
}

// A process dies between its PUT and the entry about the outcome. The next process ends the
// intent once, and the change is the relay's, by the action of the intent.
func TestCrashBetweenThePutAndItsEnd(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string][2]*config.Stream{
		"a given destination":               {toLoki, toLoki},
		"the relay":                         {toRelay, toRelay},
		"desired elsewhere after the crash": {toLoki, toAnother},
		"only observed after the crash":     {toLoki, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.breakAtPut()
			r, _ := g.start(nil, streams[0])
			require.ErrorContains(t, look(t, r), "the process is gone")
			require.Equal(t, []string{"baseline", "put_intended"}, g.trail.types())
			intent := attemptOf(g.trail.entries[1])
			require.NotEmpty(t, intent.Action)

			g.trail.breaks(nil)
			g.api.set(func() { g.api.rewrite = nil })
			again, _ := g.start(nil, streams[1])
			for range 2 {
				require.NoError(t, look(t, again))
			}
			require.Equal(t, []string{"put_ended", "changed"}, g.trail.types()[2:4])
			end := attemptOf(g.trail.entries[2])
			assert.Equal(t, []string{intent.Action, workspace.OutcomeUnknown}, []string{end.Action, end.Outcome})
			changes, _ := g.trail.changes()
			assert.Equal(t, workspace.ByRelay(intent.Action), attemptOf(changes[0]).Attribution)
			if streams[1] != toAnother {
				assert.Len(t, g.trail.types(), 4, "each change and each end once")
			}
		})
	}
}

// The API shows a PUT only after a while, also to another process. Before, the change was
// called an outsider's.
func TestAPutThatIsShownLateIsTheRelays(t *testing.T) {
	t.Parallel()
	for between := range 3 { // looks before it is shown, and then a restart
		g := newRig(t)
		r, store := g.start(nil, toRelay)
		require.NoError(t, look(t, r))
		g.api.set(func() { g.api.lags = true })
		require.NoError(t, rotate(t, r, "a"))
		for range between {
			require.NoError(t, look(t, r))
		}
		if between == 2 {
			r, store = g.start(nil, toRelay)
		}
		g.api.set(func() { g.api.late() })
		for range 2 {
			require.NoError(t, look(t, r))
		}
		_, causes := g.trail.changes()
		assert.Equal(t, []string{"relay", "relay"}, causes)
		_, d := g.trail.newest()
		assert.Equal(t, "ada@desk", d.Actor)
		st, err := store.State(shopA)
		require.NoError(t, err)
		assert.Equal(t, g.api.field("password")[39:], st.Current)
	}
}

// A PUT that the API refuses does not hide the one before it, which is shown only later.
func TestAPutThatIsShownAfterARefusedOneIsTheRelays(t *testing.T) {
	t.Parallel()
	for between := range 3 { // looks before it is shown, and then a restart
		g := newRig(t)
		r, _ := g.start(nil, toRelay)
		require.NoError(t, look(t, r))
		g.api.set(func() { g.api.lags = true })
		require.NoError(t, rotate(t, r, "a"))
		g.api.set(func() { g.api.failPut = 400 })
		for range between + 1 {
			require.Error(t, rotate(t, r, "a"))
		}
		if between == 2 {
			r, _ = g.start(func(o *Options) { o.DryRun = true }, toRelay)
			require.NoError(t, look(t, r))
		}
		g.api.set(func() { g.api.late() })
		for range 2 {
			require.NoError(t, look(t, r))
		}
		_, causes := g.trail.changes()
		assert.Equal(t, []string{"relay", "relay"}, causes)
		_, d := g.trail.newest()
		assert.Equal(t, "ada@desk", d.Actor)
	}
}

// The relay restores the destination, the API refuses its next PUT, and shows the first one
// only then: it is rated as a restoration all the same.
func TestARestorationThatIsShownAfterARefusedPutIsOne(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.fields["hostname"], g.api.lags = "evil.example.com", true })
	require.NoError(t, look(t, r))
	g.api.set(func() { g.api.failPut = 400 })
	require.Error(t, rotate(t, r, "a"))
	g.api.set(func() { g.api.late() })
	require.NoError(t, look(t, r))
	_, causes := g.trail.changes()
	assert.Equal(t, []string{"relay", "outside", "relay"}, causes)
	_, d := g.trail.newest()
	assert.Equal(t, meaning.Low, d.Severity)
}

// What the PUT did not set came from outside, in its window or not.
func TestAPutIsNotBlamedForAnothersChange(t *testing.T) {
	t.Parallel()
	t.Run("another destination in its window", func(t *testing.T) {
		t.Parallel()
		g := newRig(t)
		g.breakAtPut()
		r, _ := g.start(nil, toLoki)
		require.Error(t, look(t, r))
		g.trail.breaks(nil)
		g.api.set(func() { g.api.rewrite, g.api.fields["hostname"] = nil, "evil.example.com" })
		again, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
		require.NoError(t, look(t, again))
		_, causes := g.trail.changes()
		assert.Equal(t, []string{workspace.CauseOutside}, causes)
	})
	t.Run("the same destination, set again later", func(t *testing.T) {
		t.Parallel()
		g := newRig(t)
		r, _ := g.start(nil, toLoki)
		require.NoError(t, look(t, r))
		again, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
		for _, host := range []string{"evil.example.com", "loki.example.com"} {
			g.api.set(func() { g.api.fields["hostname"] = host })
			require.NoError(t, look(t, again))
		}
		_, causes := g.trail.changes()
		assert.Equal(t, []string{workspace.CauseRelay, workspace.CauseOutside, workspace.CauseOutside}, causes)
	})
	t.Run("the destination of a PUT that a later one replaced", func(t *testing.T) {
		t.Parallel()
		g := newRig(t)
		for _, s := range []*config.Stream{toAnother, toLoki} {
			r, _ := g.start(nil, s)
			g.api.set(func() { g.api.lags = true })
			require.NoError(t, look(t, r))
		}
		g.api.set(func() {
			g.api.late()
			g.api.fields["hostname"], g.api.fields["password"] = "b.example.com", "loki-password-0002"
		})
		again, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
		require.NoError(t, look(t, again))
		_, causes := g.trail.changes()
		assert.Equal(t, []string{workspace.CauseOutside}, causes)
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		g := newRig(t)
		g.api.failPut = 403
		r, _ := g.start(nil, toLoki)
		require.Error(t, look(t, r))
		assert.Equal(t, workspace.OutcomeRefused, attemptOf(g.trail.entries[2]).Outcome)
		g.api.set(func() {
			g.api.kind, g.api.status = "GRAFANA_LOKI", "ACTIVE"
			g.api.fields = map[string]string{"hostname": "loki.example.com", "username": "u", "password": "another-0001"}
		})
		require.NoError(t, look(t, r))
		_, causes := g.trail.changes()
		assert.Equal(t, []string{workspace.CauseOutside}, causes)
	})
}

// Without an intent in the trail nothing is sent.
func TestNothingIsSetWithoutAnIntent(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(func(o *Options) { o.DryRun = true }, toLoki)
	require.NoError(t, look(t, r))
	require.Equal(t, []string{"baseline"}, g.trail.types(), "a dry run intends nothing")
	g.trail.breaks(errors.New("disk full"))
	r, _ = g.start(nil, toLoki)
	require.ErrorContains(t, look(t, r), "record a PUT of the streaming config: use the audit trail: disk full")
	assert.Zero(t, g.api.count())
}

// Another relay's PUT may be under way, so nobody ends it before its time.
func TestAnotherHostsPutIsLeftAlone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	theirs := attempt{Attribution: workspace.ByRelay("theirs"), Relay: "another-host"}
	for _, c := range []struct {
		age  time.Duration
		want []string
	}{
		{underWay / 2, []string{"put_intended", "baseline"}},
		{2 * underWay, []string{"put_intended", "baseline", "put_intended", "put_ended"}},
	} {
		e := &audit.Entry{Type: TypePutIntended, Time: time.Now().Add(-c.age), Detail: jsontext.Encode(theirs)}
		_, err := audit.Update(t.Context(), g.trail, "shop", "a", subjectPuts, func(audit.Entry, bool) (*audit.Entry, error) { return e, nil })
		require.NoError(t, err)
		r, _ := g.start(nil, nil)
		require.NoError(t, look(t, r))
		assert.Equal(t, c.want, g.trail.types())
	}
}

// The process dies on the line between the PUT of a rotation and its entry. The next process
// knows about it: it neither rotates again, nor forgets that it was done.
func TestCrashDuringARotation(t *testing.T) {
	t.Parallel()
	refusing := func(o *Options) {
		p := newPushes()
		p.refused(time.Minute, 0)
		o.Arrivals = p.book
	}
	for name, change := range map[string]func(*Options){
		refusedPushesReason: refusing,
		scheduledReason:     func(o *Options) { o.RotateEvery = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, look(t, r))
			g.trail.age(time.Hour)
			g.breakAtPut()
			r, _ = g.start(change, toRelay)
			require.ErrorContains(t, look(t, r), "the process is gone")
			intent := attemptOf(g.trail.entries[len(g.trail.entries)-1])
			require.Equal(t, []string{name}, intent.Reason)

			g.trail.breaks(nil)
			g.api.set(func() { g.api.rewrite = nil })
			again, store := g.start(func(o *Options) {
				if change(o); o.RotateEvery > 0 {
					o.RotateEvery = time.Hour
				}
			}, toRelay)
			for range 2 {
				require.NoError(t, look(t, again))
			}
			assert.Equal(t, 2, g.api.count())
			_, ok := store.Basic(g.api.field("username"), g.api.field("password"))
			assert.True(t, ok)
			_, causes := g.trail.changes()
			assert.Equal(t, []string{"relay", "relay"}, causes)
		})
	}
}

// The trail fails on the line that tells of a fight: nothing is set meanwhile, and the next
// process tells of it once.
func TestCrashBeforeTheEntryOfAFight(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	for n := range fightAfter {
		require.NoError(t, look(t, r))
		g.undo(n)
	}
	require.Equal(t, fightAfter, g.api.count())
	g.trail.race = func() { g.trail.race = func() { g.trail.breaks(errors.New("the process is gone")) } }
	require.ErrorContains(t, look(t, r), "the process is gone")
	assert.Zero(t, g.trail.count(TypeFight))
	g.trail.breaks(nil)
	again, _ := g.start(nil, toRelay)
	for range 2 {
		require.NoError(t, look(t, again))
	}
	assert.Equal(t, []int{1, fightAfter}, []int{g.trail.count(TypeFight), g.api.count()})
}
