package app

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A journal that was spread over two shards moves to a disk once all of it is in one again: what came
// under either layout is at the sink once, and the trail is the same.
func TestAJournalThatWasSpreadMovesToADisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a change of the shards waits until each relay has heard of it")
	}
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	dir, hooks, envs := t.TempDir(), receive(t), oneOfEach()
	configOf := func(shards int) *config.Config {
		cfg := withEnvironments(inCluster(dir, "a", srv.ClientURL()), envs...)
		cfg.Sinks = []config.Sink{{Name: "out", Webhook: &config.Webhook{URL: secret.New(hooks.URL + "/out")}}}
		cfg.Journal.Shards = shards
		cfg.SetDefaults()
		return cfg
	}
	var ids []string
	push := func(r *running, word string) {
		t.Helper()
		for _, env := range envs {
			id := word + "-" + env
			require.Equal(t, http.StatusNoContent, r.pushTextAs(env, fmt.Sprintf(`{"event_id":%q}`, id)))
			ids = append(ids, id)
		}
		waiting.Until(t, func() bool { return hooks.has(map[string]string{"out": ""}, ids) }, "events are missing")
	}
	var trail struct {
		Entries int64
		Key     string `json:"public_key"`
	}
	two, one := configOf(2), configOf(1)

	r := start(t, two)
	push(r, "spread")
	require.NoError(t, r.stop())
	_, err := MoveJournal(t.Context(), two, Home{}, moveOptions())
	require.ErrorContains(t, err, "the events are spread over 2 shards: start the relays with journal.shards: 1")

	r = start(t, one)
	push(r, "still-spread")
	var spread struct{ Shards int }
	waiting.Until(t, func() bool { r.section("cluster", &spread); return spread.Shards == 1 }, "the events are not in one shard")
	push(r, "together")
	waiting.Until(t, func() bool { r.section("trail", &trail); return trail.Key != "" })
	before := trail
	require.NoError(t, r.stop())

	_, err = MoveJournal(t.Context(), one, Home{}, moveOptions())
	require.NoError(t, err)
	disk := configOf(1)
	disk.Journal.URL = ""
	r = start(t, disk)
	push(r, "on-a-disk")
	waiting.Until(t, func() bool { r.section("trail", &trail); return trail.Entries > before.Entries })
	assert.Equal(t, before.Key, trail.Key)
	require.NoError(t, r.stop())
	hooks.mu.Lock()
	defer hooks.mu.Unlock()
	for id, n := range hooks.got["out"] {
		assert.Equal(t, 1, n, id)
	}
	assert.Empty(t, hooks.odd, "nothing was lost")
}
