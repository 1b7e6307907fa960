package web

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// An environment's page has what was declared and what was judged on one axis, cut to its length. A
// state of before it goes on; of before the first entry nothing is known, and nothing is claimed.
func TestAnEnvironmentsHistoryIsOnOneAxis(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	now := time.Now().UTC()
	at := func(hours float64) time.Time { return now.Add(-time.Duration(hours * float64(time.Hour))) }
	entry := func(kind, subject string, when time.Time, after, detail string) audit.Entry {
		return audit.Entry{Type: kind, Project: "shop", Environment: "live", Subject: subject, Time: when, After: json.RawMessage(after), Detail: json.RawMessage(detail)}
	}
	fill(t, c, []audit.Entry{
		entry("streaming.baseline", streaming.Subject, at(48), `{"streaming_status":"ACTIVE"}`, `{"summary":"first look"}`),
		entry("health.changed", health.Subject, at(47), "", `{"summary":"it flows","to":"flowing"}`),
		entry("streaming.status_changed", streaming.Subject, at(12), `{"streaming_status":"DISABLED"}`, `{"summary":"somebody disabled it"}`),
		entry("health.changed", health.Subject, at(6), "", `{"summary":"it is silent","to":"silent"}`),
		entry("health.changed", health.Subject, at(5), "", `{"summary":"still","to":"silent"}`),
		{Type: "health.changed", Project: "shop", Environment: "other", Subject: health.Subject, Time: at(1), Detail: json.RawMessage(`{"to":"late"}`)},
	})
	c.status["environments"] = []health.Status{
		{
			Project: "shop", Environment: "live", State: health.Silent, Reason: hostile, Gap: &health.Gap{Begun: at(6), Reason: hostile, EventsLost: 4711, EventsLostLeast: 4700, EventsLostMost: 4720, EstimatedBy: health.ByRhythm},
			Gaps: []health.Gap{{Begun: at(40), Ended: at(30), EventsLost: 1}},
		},
		{Project: "shop", Environment: "calm", State: health.Flowing, Since: at(2)},
	}
	session := login(t, c.Console, c.URL)
	lanes := func(environment, days string) (all []string) {
		_, page := send(t, "GET", c.URL+"/streaming/shop/"+environment+"?days="+days, session)
		assert.NotContains(t, page, hostile)
		_, table, found := strings.Cut(page, "As a table")
		require.True(t, found, page)
		table, _, _ = strings.Cut(table, "</table>")
		for row := range strings.SplitSeq(table, `<th scope="row">`) {
			name, state, is := strings.Cut(row, `</th><td class="text" data-label="State"><bdi>`)
			state, rest, _ := strings.Cut(state, "</bdi>")
			_, begun, _ := strings.Cut(rest, `datetime="`)
			began, _ := time.Parse(time.RFC3339, begun[:min(len(begun), 20)])
			if is {
				all = append(all, fmt.Sprintf("%s: %s %.0f", name, state, now.Sub(began).Hours()))
			}
		}
		return all
	}
	day, month := lanes("live", "1"), lanes("live", "30")
	if assert.Len(t, day, 6) && assert.Len(t, month, 8) {
		assert.Equal(t, []string{"Declared by the API: ACTIVE 24", "Declared by the API: DISABLED 12", "Observed by the relay: flowing 24", "Observed by the relay: silent 6"}, day[:4])
		assert.Equal(t, []string{"Declared by the API: ACTIVE 48", "Declared by the API: DISABLED 12", "Observed by the relay: flowing 47", "Observed by the relay: silent 6"}, month[:4])
		assert.Contains(t, day[4], "4711")
		assert.Contains(t, month[6], "first look")
	}
	assert.Equal(t, []string{"Observed by the relay: flowing 2"}, lanes("calm", "7"))
}

// A page has the newest of many entries. What was before them is not claimed to be known.
func TestALongHistoryIsCut(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	now := time.Now().UTC()
	var entries []audit.Entry
	for i := range mostHistory + 1 {
		entries = append(entries, audit.Entry{
			Type: "health.changed", Project: "shop", Environment: "live", Subject: health.Subject, Time: now.Add(-time.Hour + time.Duration(i)*time.Second),
			Detail: fmt.Appendf(nil, `{"summary":"it changes","to":%q}`, []health.State{health.Flowing, health.Silent}[i%2]),
		})
	}
	fill(t, c, entries)
	_, page := send(t, "GET", c.URL+"/streaming/shop/live?days=1", login(t, c.Console, c.URL))
	assert.Contains(t, page, "the newest 500 entries")
	_, first, _ := strings.Cut(page, `<th scope="row">Observed by the relay</th>`)
	assert.True(t, strings.HasPrefix(first, `<td class="text" data-label="State"><bdi>silent</bdi></td><td data-label="From"><time datetime="`+entries[1].Time.Format(time.RFC3339)), first[:min(len(first), 200)])
}

// The picture of a rate has its figures in words, and leads to a page with all of them in a table and on
// an axis; there is neither before the first minute.
func TestAPictureOfARateHasItsFiguresInATable(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	c.status["environments"] = []health.Status{
		{Project: "shop", Environment: "live", State: health.Flowing, EventsByMinute: []int64{300, 0, 150}},
		{Project: "shop", Environment: "new", State: health.Flowing},
	}
	session := login(t, c.Console, c.URL)
	_, page := send(t, "GET", c.URL+"/", session)
	assert.Contains(t, page, "<title>shop/live: events by minute over 3 minutes, at least 0, at most 300, lately 150</title>")
	assert.Contains(t, page, `data-numbers="300 0 150"`)
	assert.Contains(t, page, `points="0,3 1,97 2,50"`)
	assert.Contains(t, page, `href="/streaming/shop/live"`)
	_, page = send(t, "GET", c.URL+"/streaming/shop/live", session)
	_, table, found := strings.Cut(page, `id="hour-table"`)
	require.True(t, found, page)
	table, _, _ = strings.Cut(table, "</table>")
	var events []string
	for _, row := range strings.Split(table, `<td class="number" data-label="Events">`)[1:] {
		n, _, _ := strings.Cut(row, "<")
		events = append(events, n)
	}
	assert.Equal(t, []string{"150", "0", "300"}, events, "the newest first")
	assert.Equal(t, 2, strings.Count(page, `<rect class="mark"`), "a bar for each minute with events")
	assert.Contains(t, page, `data-axis="hour-table"`)
	assert.Contains(t, page, `id="hour-cursor"`)
	_, page = send(t, "GET", c.URL+"/streaming/shop/new", session)
	assert.NotContains(t, page, "hour-table")
}

// Segments never leave the picture, and one that is too short to be seen is as wide as a line.
func TestSegmentsStayOnTheAxis(t *testing.T) {
	t.Parallel()
	now := time.Now()
	x := axis{From: now.Add(-time.Hour), Until: now}
	var l lane
	l.add(x, segment{From: now.Add(-5 * time.Hour), Until: now.Add(-30 * time.Minute)})
	l.add(x, segment{From: now.Add(-5 * time.Hour), Until: now.Add(-2 * time.Hour)})
	l.add(x, segment{From: now.Add(-30 * time.Minute)})
	if assert.Len(t, l.Segments, 2) {
		assert.InDelta(t, 0, l.Segments[0].X, 0.01)
		assert.InDelta(t, 500, l.Segments[0].Width, 0.01)
		assert.InDelta(t, 3, l.Segments[1].Width, 0.01)
	}
}

// A silence is first shown, and needs a length and a reason.
func TestASilenceIsShownFirst(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	session := login(t, c.Console, c.URL)
	ask := func(fields url.Values) string {
		_, page := send(t, "POST", c.URL+"/silences/add?"+fields.Encode(), session)
		return page
	}
	fields := url.Values{"project": {"shop"}, "environment": {"live"}, "hours": {"1.5"}, "reason": {"maintenance " + hostile}}
	page := ask(fields)
	assert.Contains(t, page, "for 1h30m0s")
	assert.Contains(t, page, "Nothing has been changed yet")
	assert.NotContains(t, page, hostile)
	for _, hours := range []string{"", "x", "0", "-1", "NaN", "721"} {
		assert.Contains(t, ask(with(fields, "hours", hours)), "number of hours", hours)
	}
	assert.Contains(t, ask(with(fields, "reason", "")), "and a reason")
}
