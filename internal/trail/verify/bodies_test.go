package verify

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
)

// framedImitations are lines that look like events with attributes, or like a batch of them.
func framedImitations(t *testing.T, l *testLog, bodies [][]byte, delivered []relay.Event) map[string][]byte {
	t.Helper()
	other := delivered[7]
	other.Subject = "another"
	forged := relay.Event{ID: "1", Source: relay.TrailSource, Type: "settings.changed", Time: day, ContentType: "application/json"}
	all := map[string][]byte{
		"text that begins like an array":       []byte(`[info] a user has logged in`),
		"text with the name of an attribute":   []byte(`a "specversion" {`),
		"an array that ends early":             []byte(`[{"specversion":"1.0"},`),
		"an entry with another attribute":      cloudEvent(other),
		"a batch with that":                    bytes.Join([][]byte{[]byte("["), cloudEvent(other), []byte("]")}, nil),
		"an event of the trail without a body": cloudEvent(forged),
	}
	for name, body := range imitations(t, l, bodies) {
		forged.Body = body
		all[name+", with attributes"] = cloudEvent(forged)
	}
	return all
}

// In a copy of bare bodies, an event with attributes is a body too, and anybody can have pushed
// it.
func TestAPushedEventAmongBodiesIsNamedApart(t *testing.T) {
	t.Parallel()
	l, bodies, delivered := copyOf(t, 20)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	everything := bytesOf(bodies)
	for name, line := range framedImitations(t, l, bodies, delivered) {
		r := checkEvents(t, o, append([][]byte{line}, bodies...)...)
		require.Empty(t, append(texts(r.Integrity), texts(r.Completeness)...), name)
		assert.EqualValues(t, 20, r.Entries, name)
		assert.EqualValues(t, 1, r.Apart.Events, name)
		everything = append(everything, line)

		r = checkEvents(t, o, append(without(bodies, 7), line)...)
		assert.NotEmpty(t, append(texts(r.Integrity), texts(r.Completeness)...), "%s: the entry is deleted", name)
		r = checkEvents(t, o, append(replaced(bodies, 7, `"n":7`, `"n":8`), line)...)
		assert.NotEmpty(t, r.Integrity.Findings, "%s: the entry is altered", name)
	}
	sound(t, checkEvents(t, o, everything...))
}

// In a copy of events with attributes, single bodies do not excuse forged events.
func TestABodyAmongEventsExcusesNoForgedOne(t *testing.T) {
	t.Parallel()
	l, bodies, delivered := copyOf(t, 20)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	lines := [][]byte{bodies[3], bodies[4]}
	for i, e := range delivered {
		if i != 3 && i != 4 {
			lines = append(lines, cloudEvent(e))
		}
	}
	sound(t, checkEvents(t, o, lines...))
	for name, line := range framedImitations(t, l, bodies, delivered) {
		r := checkEvents(t, o, append(lines, line)...)
		assert.NotEmpty(t, r.Integrity.Findings, name)
	}
}
