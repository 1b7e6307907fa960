package eventproof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whoever reads a bundle sees the event that was proven: a member that stands there twice, or in another
// spelling, would be read in two ways.
func TestABundleIsReadInOneWayOnly(t *testing.T) {
	t.Parallel()
	s, all := proven(t)
	defer s.shut()
	b, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&all[3]))
	require.NoError(t, err)
	sound, err := json.Marshal(b)
	require.NoError(t, err)
	var spaced bytes.Buffer
	require.NoError(t, json.Indent(&spaced, sound, "", "  "))
	_, err = ParseBundle(spaced.Bytes())
	require.NoError(t, err)
	event, err := json.Marshal(b.CloudEvent)
	require.NoError(t, err)
	member := fmt.Sprintf(`"cloud_event":%s`, event)
	require.Contains(t, string(sound), member)
	for name, change := range map[string][2]string{
		"first":      {member, `"cloud_event":"{}",` + member},
		"last":       {member, member + `,"cloud_event":"{}"`},
		"same":       {member, member + "," + member},
		"spelled":    {member, `"Cloud_Event":"{}",` + member},
		"respelled":  {`"position"`, `"POSITION"`},
		"unknown":    {member, `"note":"",` + member},
		"other salt": {`=="`, `=\n="`},
		"trailing":   {`"auditrelay.event-proof/1"`, `"auditrelay.event-proof/1" {}`},
	} {
		text := strings.Replace(string(sound), change[0], change[1], 1)
		require.NotEqual(t, string(sound), text, name)
		_, err := ParseBundle([]byte(text))
		assert.Error(t, err, name)
	}
}

// A span whose numbers are not those of its records was not made by a relay: nothing is proven with it,
// and no event is missing or there.
func TestASpanThatContradictsItsRecordsProvesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	all := append(s.push("event_log.LOGIN", 5), s.push("event_log.LOGIN", 2)...)
	s.end()
	b, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&all[2]))
	require.NoError(t, err)
	var list bytes.Buffer
	lines := json.NewEncoder(&list)
	require.NoError(t, List(t.Context(), s.logs(), s.trail, 0, func(line any) error { return lines.Encode(line) }))
	_, rest, _ := strings.Cut(list.String(), "\n")
	sound := b.Entry
	require.Contains(t, sound, `"events":7`)
	for _, events := range []int{0, 4, 7, 8} {
		b.Entry = strings.Replace(sound, `"events":7`, fmt.Sprintf(`"events":%d`, events), 1)
		_, err := b.Verify()
		assert.Equal(t, events < 5, err != nil, "%d events: %v", events, err)
		head, err := json.Marshal(ListHead{ListFormat, SpanEntry{Entry: b.Entry}})
		require.NoError(t, err)
		_, err = Compare(strings.NewReader(string(head)+"\n"+rest), trusted, strings.NewReader(linesOfEvents(all[2:])))
		assert.Equal(t, events != 7, err != nil, "%d events: %v", events, err)
	}
}
