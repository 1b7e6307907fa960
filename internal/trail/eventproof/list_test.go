package eventproof

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// linesOfEvents is a sink's file.
func linesOfEvents(events []relay.Event) string {
	var text []byte
	for i := range events {
		text = append(cloudevents.AppendJSON(text, &events[i]), '\n')
	}
	return string(text)
}

// trusted takes any entry for one of the trail's.
func trusted(*ListHead) error { return nil }

func TestASpanIsVerifiedFromACopyOfItsEvents(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	all := slices.Concat(s.push("event_log.LOGIN", 5), s.push("event_log.LOGIN", 2), s.push("event_log.LOGIN", 1000))
	s.end()
	require.Len(t, s.spans(), 1)
	var list bytes.Buffer
	lines := json.NewEncoder(&list)
	require.NoError(t, List(t.Context(), s.logs(), s.trail, 0, func(line any) error { return lines.Encode(line) }))
	compare := func(list string, events []relay.Event) (Compared, error) {
		return Compare(strings.NewReader(list), trusted, strings.NewReader(linesOfEvents(events[:3])), strings.NewReader(linesOfEvents(events[3:])))
	}
	others := append(slices.Clone(all), all[4], relay.Event{ID: "x", Source: "y", Received: all[3].Received})
	slices.Reverse(others)
	c, err := compare(list.String(), others)
	require.NoError(t, err)
	assert.Equal(t, Compared{First: 1, Last: 3, Events: 1007, Found: 1007}, c)

	changed := slices.Clone(all)
	changed[6].Body = []byte(`{"n":0}`)
	changed = slices.Delete(changed, 1, 2)
	changed = slices.Delete(changed, 500, 501)
	c, err = compare(list.String(), changed)
	require.NoError(t, err)
	assert.EqualValues(t, 1004, c.Found)
	assert.Equal(t, []Place{{1, 1}, {2, 1}, {3, 494}}, c.Absent)

	byLine := strings.SplitAfter(list.String(), "\n")
	for name, lines := range map[string][]string{
		"a record is gone": slices.Delete(slices.Clone(byLine), 2, 3),
		"twice":            slices.Insert(slices.Clone(byLine), 2, byLine[1]),
		"moved":            {byLine[0], byLine[2], byLine[1], byLine[3]},
		"a hash is odd":    {byLine[0], strings.Replace(byLine[1], `"event_hashes":["`, `"event_hashes":["AAAA`, 1), byLine[2], byLine[3]},
		"another salt":     {byLine[0], strings.Replace(byLine[1], `"salt":"`, `"salt":"AAAA`, 1), byLine[2], byLine[3]},
		"no salt":          {byLine[0], regexp.MustCompile(`,"salt":"[^"]*"`).ReplaceAllString(byLine[1], ""), byLine[2], byLine[3]},
		"no head":          byLine[1:],
		"empty":            {},
	} {
		_, err := compare(strings.Join(lines, ""), all)
		assert.Error(t, err, name)
	}
}

func FuzzCompare(f *testing.F) {
	f.Add(`{"format":"auditrelay.span/1","entry_index":0,"entry":"{}"}`+"\n"+`{"position":1,"event_hashes":[],"salt":"AAAA"}`, `{"specversion":"1.0","id":"1","source":"s"}`)
	entry := `{\"detail\":{\"events\":1,\"first_position\":1,\"last_position\":1,\"records\":1,\"root\":\"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\"},\"project\":\"p\",\"subject\":\"events\",\"time\":\"2026-01-01T00:00:00Z\",\"type\":\"events.span\"}`
	f.Add(`{"format":"auditrelay.span/1","entry_index":0,"entry":"`+entry+`"}`+"\n"+`{"position":1,"salt":"AAAAAAAAAAAAAAAAAAAAAA=="}`, "")
	f.Fuzz(func(_ *testing.T, list, copied string) {
		_, _ = Compare(strings.NewReader(list), trusted, strings.NewReader(copied))
	})
}
