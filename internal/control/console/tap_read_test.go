package console

import (
	"strings"
	"testing"

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
	assert.Len(t, x.lookAt(recordOf(tapEvents+7, "x"), &look{tapRecords, tapLooked, tapEvents, tapBytes}), tapEvents)
	assert.Equal(t, TapCounts{Dropped: 7}, x.counts)

	l := look{tapRecords, tapLooked, tapEvents, tapBytes} // base64 makes a third more of them
	assert.Len(t, x.lookAt(recordOf(5, strings.Repeat("x", tapBytes/4)), &l), 2)
	assert.Equal(t, TapCounts{Dropped: 7 + 3}, x.counts)
	assert.GreaterOrEqual(t, l.bytes, int64(0))

	assert.Len(t, x.lookAt(recordOf(2, strings.Repeat("x", tapBytes)), &l), 1, "one is shown, however large")
	assert.True(t, l.spent())
}
