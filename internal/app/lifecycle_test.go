package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// told is an entry about a run, as a sink gets it.
type told struct {
	Type   string          `json:"type"`
	After  json.RawMessage `json:"after"`
	Detail run             `json:"detail"`
}

// runs reads the entries about runs out of a file sink.
func runs(t *testing.T, path string) (all []told) {
	t.Helper()
	for rec, err := range readback.Records(path) {
		require.NoError(t, err)
		if kind := rec.Attributes["type"]; kind == typeStarted || kind == typeStopped {
			var e told
			require.NoError(t, json.Unmarshal(rec.Body, &e))
			all = append(all, e)
		}
	}
	return all
}

// The runs of a relay and the changes of its configuration are entries of the trail, at
// every sink when the relay has stopped.
func TestStartsAndStopsAreEntries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := testConfig(dir)
	cfg.Environments = append(cfg.Environments, config.Environment{Project: "acme", Environment: "test"})
	r := start(t, cfg)
	require.NoError(t, r.stop())
	all := runs(t, r.path)
	require.Len(t, all, 2)
	first, stop := all[0].Detail, all[1].Detail
	assert.Equal(t, []string{typeStarted, typeStopped}, []string{all[0].Type, all[1].Type})
	assert.Nil(t, first.Last)
	assert.Equal(t, "the relay was told to stop, and stopped", stop.Summary)
	assert.Equal(t, first.ConfigSHA256, stop.ConfigSHA256)
	assert.Contains(t, string(all[0].After), `"acme/test"`)

	changed := testConfig(dir)
	changed.Sinks[0].Match = &config.Match{CEL: `!(type.startsWith("event_log."))`, OnError: "deliver"}
	require.NoError(t, start(t, changed).stop())
	changed = testConfig(dir)
	changed.Sinks[0].Match = &config.Match{CEL: `!(type.startsWith("event_log."))`, OnError: "deliver"}
	changed.Environments[0].Credentials[0].Password = secret.New("another-password-of-some-length")
	changed.Workspace = nil
	require.NoError(t, start(t, changed).stop())
	all = runs(t, r.path)
	require.Len(t, all, 6)
	edited, same := all[2].Detail, all[4].Detail
	assert.Equal(t, "the relay started with another configuration: environment `acme/test` was taken out of the relay's configuration, and 1 more change", edited.Summary)
	assert.Equal(t, "high", string(edited.Severity))
	assert.Equal(t, "weaker", string(edited.Direction))
	require.NotNil(t, edited.Last)
	assert.True(t, edited.Last.Stopped)
	assert.NotEqual(t, first.ConfigSHA256, edited.ConfigSHA256)
	assert.Equal(t, edited.ConfigSHA256, same.ConfigSHA256, "a secret is not in the hash")
	assert.Equal(t, "the relay started, with the configuration it had before", same.Summary)
	content, err := os.ReadFile(r.path)
	require.NoError(t, err)
	assert.NotContains(t, string(content), "password-of-some-length")
	assert.NotContains(t, string(content), "0123456789abcdef0123456789abcdef")
}

// After a crash, the next start tells that the run before ended without a stop, and what
// was changed meanwhile.
func TestACrashIsTold(t *testing.T) {
	t.Parallel()
	trail := trailtest.New(t)
	process := func(change func(*config.Config)) *lifecycle {
		cfg := testConfig("/var/lib/auditrelay")
		change(cfg)
		l, err := (&control{process: runsWith(&process{}, cfg)}).newLifecycle()
		require.NoError(t, err)
		l.trail = trail
		return l
	}
	newest := func() (d run) {
		e, found, err := trail.Last(t.Context(), ownProject, "", "relay")
		require.NoError(t, err)
		require.True(t, found)
		require.NoError(t, json.Unmarshal(e.Detail, &d))
		return d
	}
	require.NoError(t, process(func(*config.Config) {}).started(t.Context()))
	require.NoError(t, process(func(*config.Config) {}).started(t.Context()))
	d := newest()
	assert.False(t, d.Last.Stopped)
	assert.Equal(t, "the relay started, with the configuration it had before; the run before ended without a stop, as at a crash or a power cut", d.Summary)
	assert.Equal(t, "medium", string(d.Severity))

	l := process(func(c *config.Config) { c.Settings.Disabled = true })
	require.NoError(t, l.started(t.Context()))
	assert.Contains(t, newest().Summary, "the relay started with another configuration: `/settings/disabled` gained `true`; the run before ended without a stop")
	assert.Equal(t, "high", string(newest().Severity))
	assert.Equal(t, "unknown", newest().Actor)

	entered := make(chan struct{})
	close(entered)
	_, err := l.stopWhen(t.Context(), entered, errors.New("the disk is gone"))
	require.NoError(t, err)
	assert.Equal(t, "the relay stopped, as a part of it failed; its log says which", newest().Summary)
	require.NoError(t, l.started(t.Context()))
	assert.True(t, newest().Last.Stopped)
}

// slowStore takes twice as long for each entry of the trail as a stop has for its other steps.
type slowStore struct{ store.Store }

func (s slowStore) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	log, err := s.Store.Log(ctx, name, o)
	return slowLog{log}, err
}

type slowLog struct{ store.Log }

func (l slowLog) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	if err := retry.Sleep(ctx, 2*stopWithin); err != nil {
		return 0, err
	}
	return l.Log.AppendAt(ctx, after, drafts...)
}

// The entry of a stop is made on a disk that is slow, too: otherwise the next start would tell of a
// crash.
func TestASlowDiskHasTheEntryOfTheStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := trailtest.Store(t, dir)
		trail, err := audit.Open(t.Context(), slowStore{s}, audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}})
		require.NoError(t, err)
		l, err := (&control{process: runsWith(&process{}, testConfig(dir))}).newLifecycle()
		require.NoError(t, err)
		l.trail = trail
		entered := make(chan struct{})
		close(entered)
		_, err = l.stopWhen(t.Context(), entered, nil)
		assert.NoError(t, err)
		require.NoError(t, trail.Close(t.Context()))
		require.NoError(t, s.Close())
	})
}

// A sink that never answers holds the stop up for a moment only.
func TestADeadSinkDoesNotHoldTheStopUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hangs.Close()
	defer close(release)
	dir := t.TempDir()
	cfg := testConfig(dir, config.Sink{Name: "hangs", Webhook: &config.Webhook{URL: secret.New(hangs.URL)}})
	r := start(t, cfg)
	require.NoError(t, r.stop())
	all := runs(t, filepath.Join(dir, "out", "events.jsonl"))
	require.Len(t, all, 2)
	assert.Equal(t, typeStopped, all[1].Type)
}
