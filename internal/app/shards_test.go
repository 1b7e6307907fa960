package app

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// oneOfEach names an environment of each of two shards.
func oneOfEach() []string {
	by := make([]string, 2)
	for i := 0; by[0] == "" || by[1] == ""; i++ {
		name := fmt.Sprintf("e%d", i)
		by[journal.ShardOf(relay.SourceOf("acme", name), 2)] = name
	}
	return by
}

// With two shards people see and change everything as with one: the status, live events, replays,
// dead letters, losses, and sinks that are retired.
func TestTwoShardsAreOneJournal(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, hooks, envs := t.TempDir(), receive(t), oneOfEach()
	configOf := func(names ...string) *config.Config {
		cfg := withEnvironments(inCluster(dir, "a", srv.ClientURL(), "none"), envs...)
		cfg.Sinks, cfg.Journal.Shards = nil, 2
		for _, name := range names {
			cfg.Sinks = append(cfg.Sinks, config.Sink{Name: name, Webhook: &config.Webhook{URL: secret.New(hooks.URL + "/" + name)}})
		}
		cfg.Sinks[0].Redact = &config.Redact{Remove: []string{"/email"}}
		cfg.SetDefaults()
		return cfg
	}
	join := func(names ...string) (*running, *console.Client) {
		cfg := configOf(names...)
		r := start(t, cfg)
		waiting.Until(t, func() bool { return len(r.jobs()) == 1+2*len(names) }, "it does not do all jobs")
		return r, console.NewClient(cfg.DataDir)
	}
	r, client := join("strict", "other")
	var ids []string
	for i, env := range envs {
		id := fmt.Sprintf("good-%d", i)
		require.Equal(t, http.StatusNoContent, r.pushTextAs(env, fmt.Sprintf(`{"event_id":%q,"action":"LOGIN"}`, id), "no JSON "+env))
		ids = append(ids, id)
	}
	sinks := map[string]string{"strict": "", "other": ""}
	waiting.Until(t, func() bool { return hooks.has(sinks, ids) }, "events are missing")

	var status struct{ Jobs []JobStatus }
	r.section("cluster", &status)
	positions := map[string]bool{}
	for _, job := range status.Jobs {
		positions[job.Name] = job.Position != nil && job.Holder != ""
	}
	assert.Equal(t, map[string]bool{"control": false, "sink/strict": true, "sink/strict/1": true, "sink/other": true, "sink/other/1": true}, positions)
	var list []console.Sink
	waiting.Until(t, func() bool {
		var err error
		list, err = client.Sinks(t.Context()) // control may still be starting
		return err == nil && len(list) == 2 && list[1].DeadLetters == 2 && list[0].Position.Pending+list[1].Position.Pending == 0
	}, "the sinks have not all")
	assert.Len(t, list[0].Position.Shards, 2)

	letters := map[string]bool{}
	require.NoError(t, client.Letters(t.Context(), console.ListLetters{}, func(l *console.Letter) error { letters[l.Environment] = true; return nil }))
	assert.Equal(t, map[string]bool{envs[0]: true, envs[1]: true}, letters)
	tapped := map[string]bool{}
	require.NoError(t, client.Tap(t.Context(), console.Tap{Newest: 100}, func(e *console.Tapped) error {
		event, err := e.Event()
		tapped[event.ID] = true
		return err
	}, func(*console.TapCounts) {}))
	for _, id := range ids {
		assert.True(t, tapped[id], id)
	}
	replayed := console.Progress{}
	note := func(p *console.Progress) { replayed = *p }
	require.NoError(t, client.ReplaySpan(t.Context(), console.ReplaySpan{Sink: "other", Since: time.Now().Add(-time.Hour), Match: `id.startsWith("good-")`}, note))
	assert.EqualValues(t, 2, replayed.Delivered, "those of both shards")
	require.NoError(t, client.ReplayLetters(t.Context(), console.ReplayLetters{To: "other"}, note))
	assert.EqualValues(t, 2, replayed.Delivered)

	// The second shard loses a record. A new sink, which reads from the beginning, names it, and passes
	// over it.
	require.NoError(t, r.stop())
	stream, err := natstest.JetStream(t, srv).Stream(t.Context(), "AUDITRELAY_EVENTS_1")
	require.NoError(t, err)
	require.NoError(t, stream.DeleteMsg(t.Context(), 1))
	r, client = join("third", "other")
	waiting.Until(t, func() bool { return hooks.has(map[string]string{"third": ""}, ids[:1]) }, "the other shard is not read")
	waiting.Until(t, func() bool {
		hooks.mu.Lock()
		defer hooks.mu.Unlock()
		return len(hooks.odd) > 0
	}, "nobody is told of the loss")
	waiting.Until(t, func() bool { _, err := client.Retire(t.Context(), "strict"); return err == nil }, "it is not retired")
	list, err = client.Sinks(t.Context())
	require.NoError(t, err)
	for i := range list {
		assert.False(t, list[i].Name == "strict" && list[i].Position != nil, "it is retired in both shards")
	}
	usage := r.metric(`auditrelay_journal_trim_blocked{shard="1"}`)
	assert.Equal(t, "0", usage)
	require.NoError(t, r.stop())
}
