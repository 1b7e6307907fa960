package console_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/relay"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	e := relay.Event{Type: "event_log.LOGIN.start", Project: "acme", Environment: "live", ID: "id-1"}
	for expr, want := range map[string]bool{
		"":                           true,
		"type=event_log.*":           true,
		"type=*":                     true,
		"type=*.start":               true,
		"type=event*LOGIN*start":     true,
		"type=event_log.LOGIN":       false,
		"type=*LOGIN":                false,
		"type=e*start*t":             false,
		"project=acme, id=id-*":      true,
		"project=acme,id=*2":         false,
		"subject=":                   true,
		"subject=*":                  true,
		"environment=live*live":      false,
		"environment=**li**ve**":     true,
		"environment=,project=*":     false,
		"environment = live,id=id-1": true,
	} {
		m, err := console.ParseMatch(expr)
		require.NoError(t, err, expr)
		assert.Equal(t, want, m.Keeps(&e), expr)
	}
	for _, expr := range []string{"x", "colour=red", "type=a,", "=a", "type"} {
		_, err := console.ParseMatch(expr)
		require.ErrorContains(t, err, "write KEY=VALUE", expr)
	}
}
