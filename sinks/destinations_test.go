package sinks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
)

func TestDestinations(t *testing.T) {
	t.Parallel()
	environments := []config.Environment{
		{Project: "shop", Environment: "live"}, {Project: "shop", Environment: "test"}, {Project: "blog", Environment: "live"},
	}
	whole := []string{"project shop as a whole", "project blog as a whole", "the relay itself"}
	kafka := func(topic string) config.Sink {
		return config.Sink{Name: "k", Kafka: &config.Kafka{Brokers: []string{"127.0.0.1:1"}, Topic: topic}}
	}
	narrow := kafka("{project}.{environment}")
	narrow.Match = &config.Match{Projects: []string{"sh*"}, Environments: []string{"", "live"}, Types: []string{"settings.*"}}
	for name, c := range map[string]struct {
		sink config.Sink
		want []Destination
	}{
		"environment": {kafka("auth.{environment}"), []Destination{
			{"topic", "auth.live", false, []string{"shop/live", "blog/live"}},
			{"topic", "auth.test", false, []string{"shop/test"}},
			{"topic", "auth._", false, whole},
		}},
		"constant": {kafka("audit"), []Destination{
			{"topic", "audit", false, append([]string{"shop/live", "shop/test", "blog/live"}, whole...)},
		}},
		"match": {narrow, []Destination{
			{"topic", "shop.live", false, []string{"shop/live"}},
			{"topic", "shop._", false, []string{"project shop as a whole"}},
		}},
		"type": {kafka("{project}.{type}"), []Destination{
			{"topic", "shop.event_log.login", true, []string{"shop/live", "shop/test"}},
			{"topic", "blog.event_log.login", true, []string{"blog/live"}},
			{"topic", "shop.settings.changed", true, []string{"project shop as a whole"}},
			{"topic", "blog.settings.changed", true, []string{"project blog as a whole"}},
			{"topic", "auditrelay.journal.quarantined", true, []string{"the relay itself"}},
		}},
		"subject": {config.Sink{Name: "n", NATS: &config.NATS{URL: "nats://127.0.0.1:1", Subject: "a.{environment}"}}, []Destination{
			{"subject", "a.live", false, []string{"shop/live", "blog/live"}},
			{"subject", "a.test", false, []string{"shop/test"}},
			{"subject", "a._", false, whole},
		}},
		"tenant": {config.Sink{Name: "l", Loki: &config.Loki{URL: "http://127.0.0.1:1/loki/api/v1/push", Tenant: "{project}"}}, []Destination{
			{"tenant", "shop", false, []string{"shop/live", "shop/test", "project shop as a whole"}},
			{"tenant", "blog", false, []string{"blog/live", "project blog as a whole"}},
			{"tenant", "auditrelay", false, []string{"the relay itself"}},
		}},
		"no tenant": {config.Sink{Name: "l", Loki: &config.Loki{URL: "http://127.0.0.1:1/loki/api/v1/push"}}, nil},
		"file":      {config.Sink{Name: "f", File: &config.File{Path: "x"}}, nil},
	} {
		cfg := &config.Config{Environments: environments, Sinks: []config.Sink{c.sink}}
		cfg.SetDefaults()
		got, err := Destinations(cfg.Sinks[0], environments, Deps{})
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
	_, err := Destinations(kafka("a.{kind}"), environments, Deps{})
	require.ErrorContains(t, err, `kafka.topic: "a.{kind}": may hold no other placeholders`)
}

// The line stays short with hundreds of environments.
func TestManyOriginsAreCounted(t *testing.T) {
	t.Parallel()
	d := Destination{Origins: []string{"shop/live", "shop/test", "hr/live", "hr/test", "the relay itself"}}
	require.Equal(t, "shop/live, shop/test, hr/live and 2 more", d.OriginsText())
	d.Origins = d.Origins[:3]
	require.Equal(t, "shop/live, shop/test, hr/live", d.OriginsText())
}
