package streaming

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// pushes are what arrives at an environment, at times in the past.
type pushes struct {
	mu   sync.Mutex
	at   time.Time
	book *received.Book
}

func newPushes() *pushes {
	p := &pushes{}
	p.book = received.New(func() time.Time {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.at
	})
	return p
}

// ago sets the time of the next pushes.
func (p *pushes) ago(d time.Duration) *received.Environment {
	p.mu.Lock()
	p.at = time.Now().Add(-d)
	p.mu.Unlock()
	return p.book.Of(shopA)
}

func (p *pushes) refused(ago ...time.Duration) {
	for _, d := range ago {
		p.ago(d).Refused(received.Credential)
	}
}

// age makes every entry of the trail older, as if the time had passed.
func (tr *trail) age(d time.Duration) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	older := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(-d)
	}
	for i := range tr.entries {
		e := &tr.entries[i]
		e.Time = older(e.Time)
		if e.Subject != subjectPuts {
			continue
		}
		p := attemptOf(*e)
		p.Begun, p.TurnedAt, p.UndoneSince = older(p.Begun), older(p.TurnedAt), older(p.UndoneSince)
		e.Detail, _ = json.Marshal(p)
	}
}

// changedByHand gives the API another secret, with the same last four characters.
func (a *api) changedByHand() {
	a.set(func() { a.fields["password"] = "another secret, ending in " + a.fields["password"][39:] })
}

// A secret changed by hand to one with the same last four characters: the API shows the
// relay's own, and every push is refused. Before, that went on for ever, and looked fine.
func TestRefusedPushesHaveTheCredentialRotated(t *testing.T) {
	t.Parallel()
	g, p := newRig(t), newPushes()
	with := func(o *Options) { o.Arrivals = p.book }
	r, _ := g.start(with, toRelay)
	require.NoError(t, look(t, r))
	g.trail.age(time.Hour)
	g.api.changedByHand()
	p.ago(2 * time.Hour).Took(received.Push{Events: 1})
	p.refused(time.Second, 0)
	require.NoError(t, look(t, r))
	assert.Equal(t, 1, g.api.count(), "a good push may come yet")
	judge := r.watchers[0].refused.judge
	assert.True(t, time.Until(judge) > 0 && time.Until(judge) <= leastRun, "and is waited for a moment")

	p = newPushes()
	p.refused(3*time.Second, 0)
	r, store := g.start(with, toRelay)
	require.NoError(t, look(t, r))
	assert.Equal(t, 2, g.api.count())
	_, ok := store.Basic(g.api.field("username"), g.api.field("password"))
	assert.True(t, ok)
	_, d := g.trail.newest()
	assert.Equal(t, []string{refusedPushesReason}, d.Reason)

	// It does not help: somebody else knows the user name. A restart forgets no rotation.
	for _, step := range []struct {
		age  time.Duration
		puts int
	}{{50 * time.Second, 2}, {15 * time.Second, 3}, {3 * time.Minute, 3}, {2 * time.Minute, 4}, {15 * time.Minute, 4}, {49 * time.Hour, 5}, {2 * time.Minute, 6}} {
		g.trail.age(step.age)
		p = newPushes()
		p.refused(time.Minute, 0)
		r, _ = g.start(with, toRelay)
		require.NoError(t, look(t, r))
		assert.Equal(t, step.puts, g.api.count(), "after %v more", step.age)
	}
}

// While good pushes arrive, nothing is rotated, however many others are refused.
func TestGoodPushesKeepTheCredential(t *testing.T) {
	t.Parallel()
	g, p := newRig(t), newPushes()
	r, _ := g.start(func(o *Options) { o.Arrivals = p.book }, toRelay)
	require.NoError(t, look(t, r))
	g.trail.age(time.Hour)
	good := func(ago time.Duration) { p.ago(ago).Took(received.Push{Events: 1}) }
	// Every ten seconds a good one, and many others: the first run tells how long one lasts.
	good(62 * time.Second)
	p.refused(61*time.Second, 60*time.Second)
	r.watchers[0].refused.since()
	good(51 * time.Second)
	p.refused(50*time.Second, 45*time.Second)
	good(40 * time.Second)
	p.refused(15*time.Second, 0)
	require.NoError(t, look(t, r))
	assert.Equal(t, 1, g.api.count(), "the run lasts for less than twice the longest one")
	p.refused(0)
	p.ago(0).Took(received.Push{Events: 1})
	require.NoError(t, look(t, r))
	assert.Equal(t, 1, g.api.count())

	p = newPushes()
	r, _ = g.start(func(o *Options) { observing(o); o.Arrivals = p.book }, toRelay)
	p.refused(time.Minute, 0)
	require.NoError(t, look(t, r))
	assert.Equal(t, 1, g.api.count(), "nor where the relay only observes")
}

// A push is refused because somebody changed the secret: the next look would come in an
// hour, and the config is mended at once.
func TestARefusedPushIsLookedIntoAtOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, look(t, r))
	r, store := g.start(nil, toRelay)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	waiting.Until(t, func() bool { return r.Health()[0].OK() })
	g.api.set(func() { g.api.fields["password"] = "somebody's own" })
	r.LookNow(shopA)
	r.LookNow(credentials.Environment{Project: "nobody's"})
	waiting.Until(t, func() bool {
		_, ok := store.Basic(g.api.field("username"), g.api.field("password"))
		return ok
	})
	stop()
	<-done
	assert.Equal(t, 2, g.api.count())
}

// handled answers the client's requests without a network, so that time can be faked.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// A stranger with the user name sends a hundred wrong pushes a second for an hour.
func TestAStrangerCannotMakeTheRelayHammer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		client, err := management.New(management.Options{
			BaseURL: "https://api.example.com", KeyID: "k", Secret: secret.New("s"), HTTPClient: &http.Client{Transport: handled{a}},
		})
		require.NoError(t, err)
		tr := &trail{}
		r := New(Options{
			Environments: []config.Environment{{Project: "shop", Environment: "a"}}, Client: client, Recorder: tr, Interval: 4 * time.Minute,
			Presence: workspace.NewPresence(tr, slog.New(slog.DiscardHandler)),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		synctest.Wait()
		first := r.Health()[0].LastLook
		time.Sleep(time.Minute)
		r.LookNow(shopA)
		synctest.Wait()
		time.Sleep(time.Second)
		assert.NotEqual(t, first, r.Health()[0].LastLook, "the first is looked into within a second")
		a.set(func() { a.asked = 0 })
		for range 6 * 60 * 60 {
			r.LookNow(shopA)
			time.Sleep(time.Second / 6)
		}
		asked := a.asked / 2 // two requests a look
		assert.True(t, asked >= 15 && asked <= 20, "%d looks in an hour, 15 without a stranger", asked)
		stop()
		<-done
	})
}

// Right after a PUT, the provider may still push with the replaced secret.
func TestPushesWithAReplacedSecretAreWaitedOut(t *testing.T) {
	t.Parallel()
	g, p := newRig(t), newPushes()
	r, _ := g.start(func(o *Options) { o.Arrivals = p.book }, toRelay)
	require.NoError(t, look(t, r))
	p.refused(time.Minute, 0)
	require.NoError(t, look(t, r))
	judge := r.watchers[0].refused.judge
	assert.True(t, time.Until(judge) > leastRun && time.Until(judge) <= settles, "%v", judge)
	g.trail.age(settles + time.Second)
	p = newPushes()
	r, _ = g.start(func(o *Options) { o.Arrivals = p.book }, toRelay)
	p.refused(time.Minute, 0)
	require.NoError(t, look(t, r))
	assert.Equal(t, 2, g.api.count(), "they were refused after it had settled")
	g.trail.age(time.Hour)
	p = newPushes()
	r, _ = g.start(func(o *Options) { o.Arrivals = p.book }, toRelay)
	p.refused(2*time.Hour, time.Hour)
	require.NoError(t, look(t, r))
	assert.Equal(t, 2, g.api.count(), "none is refused any more")
}

func TestAlarmsBeginAnewAfterAPut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := alarms{interval: time.Hour}
	pauses := []time.Duration{}
	for range 4 {
		due := a.due(now)
		pauses = append(pauses, due.Sub(now))
		now = due
		a.took(now)
	}
	assert.Equal(t, []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute}, pauses)
	a.mended(now)
	assert.Equal(t, settles, a.due(now).Sub(now))
	a.took(now.Add(settles))
	assert.Equal(t, settles+firstAlarm, a.due(now).Sub(now))
	a.took(now.Add(4 * time.Hour))
	assert.Equal(t, 4*time.Hour+firstAlarm, a.due(now).Sub(now), "nor forgotten for ever")
}

// A run of refusals is judged at its time, unless a good push has ended it: then further
// refusals, of the next run, cause no look of their own.
func TestARunIsJudgedOnce(t *testing.T) {
	t.Parallel()
	for good, want := range map[bool]time.Duration{false: leastRun, true: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			book := received.New(time.Now)
			client, err := management.New(management.Options{BaseURL: "http://localhost", KeyID: "k", Secret: secret.New("s")})
			require.NoError(t, err)
			w := &watcher{options: Options{Client: client, Interval: time.Hour}, wake: make(chan struct{}, 1), alarms: alarms{interval: time.Hour}}
			w.refused.env = book.Of(shopA)
			w.refused.env.Refused(received.Credential)
			first, _ := w.refused.since()
			w.refused.judge = first.Add(leastRun)
			go func() {
				time.Sleep(time.Second)
				if good {
					w.refused.env.Took(received.Push{Events: 1})
				}
				time.Sleep(time.Second / 2)
				w.refused.env.Refused(received.Credential)
			}()
			began := time.Now()
			refused, err := w.rest(t.Context(), false)
			require.NoError(t, err)
			assert.Equal(t, !good, refused)
			assert.InDelta(t, want.Seconds(), time.Since(began).Seconds(), want.Seconds()/10)
			assert.True(t, w.refused.judge.IsZero(), "once, also where the next look fails")
		})
	}
}
