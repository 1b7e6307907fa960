package console

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// Both the number and the size of the events that one look shows are bounded.
func TestATapDropsWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	recordOf := func(n int, body string) []byte {
		var b record.Batch
		for range n {
			b.AddEvent(&relay.Event{ID: "x", Body: []byte(body)})
		}
		return record.Append(nil, b.Bytes(), n)
	}
	var x tap
	assert.Len(t, x.lookAt(t.Context(), recordOf(tapEvents+7, "x"), &look{records: tapRecords, events: tapLooked, shown: tapEvents, bytes: tapBytes}), tapEvents)
	assert.Equal(t, TapCounts{Dropped: 7}, x.counts)

	l := look{records: tapRecords, events: tapLooked, shown: tapEvents, bytes: tapBytes} // base64 makes a third more of them
	assert.Len(t, x.lookAt(t.Context(), recordOf(5, strings.Repeat("x", tapBytes/4)), &l), 2)
	assert.Equal(t, TapCounts{Dropped: 7 + 3}, x.counts)
	assert.GreaterOrEqual(t, l.bytes, int64(0))

	assert.Len(t, x.lookAt(t.Context(), recordOf(2, strings.Repeat("x", tapBytes)), &l), 1, "one is shown, however large")
	assert.True(t, l.spent())
}

// An expression may take long: a look that is late ends, and what it did not come to is counted. Then the
// sample rests, the longer the more of them there are; one whose client has left looks at nothing more.
func TestALookHasItsTime(t *testing.T) {
	t.Parallel()
	var b record.Batch
	for range 3 {
		b.AddEvent(&relay.Event{ID: "x", Body: []byte("x")})
	}
	data := record.Append(nil, b.Bytes(), 3)
	late := look{records: 1, events: 9, shown: 9, bytes: tapBytes, until: time.Now().Add(-1)}
	var x tap
	assert.Empty(t, x.lookAt(t.Context(), data, &late))
	assert.True(t, late.spent())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Empty(t, x.lookAt(gone, data, &look{records: 1, events: 9, shown: 9, bytes: tapBytes}))
	assert.Equal(t, TapCounts{Dropped: 6}, x.counts)
	short := look{records: 1, events: 9, shown: 9, bytes: tapBytes, lasts: 1}
	assert.Len(t, x.lookAt(t.Context(), data, &short), 1, "the first event is looked at, however slow the machine is")

	x.took = lookLasts
	assert.Zero(t, x.rest(), "it is no sample")
	x.samples = make(chan struct{}, mostSamples)
	for range mostSamples {
		x.samples <- struct{}{}
	}
	assert.Equal(t, 3*mostSamples*lookLasts, x.rest())
	x.took = lookBriefly - 1
	assert.Zero(t, x.rest())
}
