package streaming

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	loki := func(host, user, last string) *Shape {
		return &Shape{Type: management.GrafanaLoki, Hostname: host, Username: user, LastFour: last}
	}
	datadog := func(site, last string) *Shape { return &Shape{Type: management.Datadog, Site: site, LastFour: last} }
	own := credentials.State{Username: "me", Current: "curr", Pending: "pend", Replaced: []string{"rep1", "rep2"}}
	settled := credentials.State{Username: "me", Current: "curr"}
	fresh := credentials.State{Username: "me"}
	relay := &config.Stream{Relay: &config.StreamRelay{Hostname: "relay.example.com"}}
	toLoki := &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "loki.example.com", Username: "u", Password: secret.New("password-1234")}}
	toShort := &config.Stream{GrafanaLoki: &config.StreamGrafanaLoki{Hostname: "loki.example.com", Username: "u", Password: secret.New("short")}}
	toDatadog := &config.Stream{Datadog: &config.StreamDatadog{Site: "US3", APIKey: secret.New("api-key-abcd")}}
	for name, tc := range map[string]struct {
		stream *config.Stream
		own    credentials.State
		actual *Shape
		want   Action
	}{
		"relay: nothing there":          {relay, fresh, nil, Action{Differs: []string{"destination_type"}}},
		"relay: another type":           {relay, settled, datadog("US", "curr"), Action{Differs: []string{"destination_type"}}},
		"relay: unknown type":           {relay, settled, &Shape{Type: "SPLUNK"}, Action{Differs: []string{"destination_type"}}},
		"relay: as desired":             {relay, settled, loki("relay.example.com", "me", "curr"), Action{}},
		"relay: case of the host":       {relay, settled, loki("Relay.Example.COM", "me", "curr"), Action{}},
		"relay: dot after the host":     {relay, settled, loki("relay.example.com.", "me", "curr"), Action{}},
		"relay: another host":           {relay, settled, loki("else.example.com", "me", "curr"), Action{Differs: []string{"hostname"}}},
		"relay: another user":           {relay, settled, loki("relay.example.com", "you", "curr"), Action{Differs: []string{"username"}}},
		"relay: another password":       {relay, settled, loki("relay.example.com", "me", "else"), Action{Differs: []string{"secret"}}},
		"relay: lost our bucket":        {relay, fresh, loki("relay.example.com", "me", "curr"), Action{Differs: []string{"secret"}, Lost: true}},
		"relay: the pending one":        {relay, own, loki("relay.example.com", "me", "pend"), Action{Promote: "pend"}},
		"relay: a replaced one":         {relay, own, loki("relay.example.com", "me", "rep2"), Action{Promote: "rep2"}},
		"relay: pending did not arrive": {relay, own, loki("relay.example.com", "me", "curr"), Action{Drop: "pend"}},
		"relay: pending at a wrong host": {relay, own, loki("else.example.com", "me", "pend"), Action{
			Differs: []string{"hostname"}, Promote: "pend",
		}},
		"relay: last four not shown":        {relay, settled, loki("relay.example.com", "me", ""), Action{}},
		"relay: not shown, none of ours":    {relay, fresh, loki("relay.example.com", "me", ""), Action{Differs: []string{"secret"}, Lost: true}},
		"loki: as desired":                  {toLoki, fresh, loki("loki.example.com", "u", "1234"), Action{}},
		"loki: everything else":             {toLoki, fresh, loki("x", "y", "z"), Action{Differs: []string{"hostname", "username", "secret"}}},
		"loki: last four not shown":         {toLoki, fresh, loki("loki.example.com", "u", ""), Action{}},
		"loki: too short to compare":        {toShort, fresh, loki("loki.example.com", "u", "hort"), Action{}},
		"datadog: as desired":               {toDatadog, fresh, datadog("US3", "abcd"), Action{}},
		"datadog: another site":             {toDatadog, fresh, datadog("US", "abcd"), Action{Differs: []string{"site"}}},
		"datadog: another key":              {toDatadog, fresh, datadog("US3", "abce"), Action{Differs: []string{"secret"}}},
		"datadog: streams to loki":          {toDatadog, fresh, loki("h", "u", "abcd"), Action{Differs: []string{"destination_type"}}},
		"datadog: nothing there, no secret": {toDatadog, fresh, nil, Action{Differs: []string{"destination_type"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, Plan(desired(tc.stream, tc.own), tc.actual))
		})
	}
}

func TestPutWaitGrowsToItsCeiling(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 30*time.Second, putWait(time.Minute, 1))
	assert.Equal(t, time.Minute, putWait(time.Minute, 2))
	assert.Equal(t, 30*time.Minute, putWait(time.Minute, 100))
	assert.Equal(t, time.Hour, putWait(2*time.Hour, 100), "never more often than it is looked")
}
