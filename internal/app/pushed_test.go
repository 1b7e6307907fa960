package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/relay"
)

// An event without an action, whose type is event_log alone, is a push like any other: else an
// environment whose events have none would seem silent after a restart, or where another relay takes them.
func TestPushesWithoutAnAction(t *testing.T) {
	t.Parallel()
	live := credentials.Environment{Project: "shop", Environment: "live"}
	source := relay.SourceOf(live.Project, live.Environment)
	event := func(source, kind string) relay.Event {
		return relay.Event{Source: source, Type: kind, Project: live.Project, Environment: live.Environment, Received: time.Unix(1, 0)}
	}
	runs := map[credentials.Environment]int{}
	for env, run := range pushedIn([]relay.Event{
		event(source, "event_log"), event(source, "event_log.LOGIN"), event(relay.TrailSource, "settings.changed"), event(source, "event_log"),
	}) {
		runs[env] += len(run)
	}
	assert.Equal(t, map[credentials.Environment]int{live: 3}, runs)
}
