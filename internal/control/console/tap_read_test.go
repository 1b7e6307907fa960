package console

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/relay"
)

// Both the number and the size of the events that wait for a client are bounded.
func TestATapDropsWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	small, large := &relay.Event{ID: "s", Body: []byte("x")}, &relay.Event{ID: "l", Body: make([]byte, tapBytes/4)}
	x := tap{waiting: make(chan waitingEvent, tapEvents)}
	for range tapEvents + 7 {
		x.event(small)
	}
	assert.Equal(t, TapCounts{Shown: tapEvents, Dropped: 7}, *x.snapshot())
	for range tapEvents {
		e := <-x.waiting
		x.bytes.Add(-e.size)
	}
	assert.Zero(t, x.bytes.Load())
	for range 5 {
		x.event(large) // base64 makes a third more of it
	}
	assert.Equal(t, TapCounts{Shown: tapEvents + 2, Dropped: 7 + 3}, *x.snapshot())
	assert.LessOrEqual(t, x.bytes.Load(), int64(tapBytes))
}
