package streaming

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
)

// formers opens the bucket with a configuration that has no shop/a any more.
func (g *rig) formers() (*Formers, *credentials.Store) {
	g.t.Helper()
	store, err := credentials.Open(g.t.Context(), g.table, credentials.Options{Environments: []config.Environment{{Project: "shop", Environment: "other"}}})
	require.NoError(g.t, err)
	g.t.Cleanup(store.Close)
	var client Options
	r, configured := g.start(func(o *Options) { client = *o }, nil)
	configured.Close()
	require.NotNil(g.t, r)
	return NewFormers(Options{Client: client.Client, Credentials: store, Interval: time.Minute}), store
}

// lookAll looks at every one, whenever the next look is due.
func (f *Formers) lookAll(t *testing.T) FormerStatus {
	t.Helper()
	for _, one := range f.options.Credentials.Formers() {
		delete(f.looks, one.Environment)
		f.look(t.Context(), one)
	}
	all := f.Status()
	require.Len(t, all, 1)
	return all[0]
}

// A person who streams the event log elsewhere, by the host name alone, has mended it: from the
// next look on, until another push comes.
func TestAFormerEnvironmentThatIsPointedElsewhere(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, toRelay)
	require.NoError(t, r.watchers[0].look(t.Context()))
	store.Close()
	f, store := g.formers()
	f.hosts = hostsOf([]config.Environment{{Stream: toRelay}})
	push := func() { _, _ = store.Former(shopA.Username(), g.api.sent()[0]) }
	push()
	require.True(t, f.lookAll(t).PointsHere)
	empty := `{}`
	g.api.set(func() { g.api.answers = map[string]*string{"GRAFANA_LOKI": &empty} })
	f.look(t.Context(), store.Formers()[0])
	require.True(t, f.Status()[0].PointsHere, "an implausible answer changes nothing")
	g.api.set(func() { g.api.answers, g.api.fields["hostname"] = nil, "logs.example.com" })
	f.look(t.Context(), store.Formers()[0])
	s := f.status(time.Now().Add(time.Second))[0]
	assert.False(t, s.Losing, s.Reason)
	assert.False(t, s.PointsHere)
	l := f.looks[shopA]
	l.good = l.good.Add(-time.Minute)
	f.looks[shopA] = l
	push()
	assert.True(t, f.Status()[0].Losing)
}

// An environment whose config at the API still has this relay's credential is named, with
// the step that mends it, until the API or the configuration is mended.
func TestAFormerEnvironmentThatPointsHere(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, store := g.start(nil, &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}})
	require.NoError(t, r.watchers[0].look(t.Context()))
	store.Close()

	f, store := g.formers()
	s := f.lookAll(t)
	assert.True(t, s.PointsHere)
	assert.True(t, s.Losing)
	assert.Equal(t, "shop/a", s.Project+"/"+s.Environment)
	assert.Contains(t, s.Reason, "the API still streams it to relay.example.com")
	assert.Contains(t, s.Action, "{project: shop, environment: a}")

	issued := g.api.sent()[0]
	_, ok := store.Former(shopA.Username(), issued)
	require.True(t, ok)
	assert.Contains(t, f.Status()[0].Reason, "1 push was refused")

	g.api.set(func() { g.api.failRead = 500 })
	s = f.lookAll(t)
	assert.True(t, s.Losing, "its pushes tell of it without the API")
	assert.NotEmpty(t, s.Error)
	g.api.set(func() { g.api.failRead = 0 })

	later := f.status(time.Now().Add(pushesFor))[0]
	assert.False(t, later.Losing, "nothing points here by the API, and no push has come for long")
}

func TestAFormerEnvironmentOfAnotherPlace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*api){
		"another host's account":             func(a *api) { a.fields["username"] = "somebody" },
		"another relay's credential":         func(a *api) { a.fields["password"] = "made-by-another-relay-0000" },
		"no config":                          func(a *api) { a.kind = "" },
		"a config of the other type":         func(a *api) { a.kind, a.fields = "DATADOG", map[string]string{"api_key": "k", "site": "US"} },
		"the environment does not exist":     func(a *api) { a.gone = true },
		"an answer without any destination ": func(a *api) { a.fields = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, store := g.start(nil, &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}})
			require.NoError(t, r.watchers[0].look(t.Context()))
			store.Close()
			g.api.set(func() { change(g.api) })
			f, _ := g.formers()
			s := f.lookAll(t)
			assert.False(t, s.Losing, s.Reason)
			assert.Empty(t, s.Action)
		})
	}
}

func TestACredentialThatRotatesOnIsNoFormerOne(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	_, store := g.start(nil, &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}})
	_, err := store.Prepare(t.Context(), shopA)
	require.NoError(t, err)
	assert.Empty(t, NewFormers(Options{Credentials: store}).Status())
}
