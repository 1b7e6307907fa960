package relay_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// Errors that differ by a number are told once, deliveries are counted by minute, and what is kept
// has a bound.
func TestTheHistoryOfDeliveries(t *testing.T) {
	t.Parallel()
	events := relaytest.Events(12)
	down := func(n int) relaytest.Outcome {
		return relaytest.Outcome{Err: fmt.Errorf("dial 127.0.0.1:%d: connection refused", 4000+n)}
	}
	respond := relaytest.Script(down(1), down(22), down(333))
	pumping(t, respond, [][]relay.Event{events[:10], events[10:]}, func(t *testing.T, p *pumped) {
		began := time.Now()
		require.Empty(t, p.pump.Metrics.History("test").Minutes)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		h := p.pump.Metrics.History("test")
		require.Len(t, h.Failures, 1)
		f := h.Failures[0]
		assert.Equal(t, "dial 127.0.0.1:4333: connection refused", f.Error)
		assert.EqualValues(t, 3, f.Count)
		assert.Equal(t, began, f.First)
		assert.True(t, f.Last.After(f.First))
		delivered, failed := sums(h)
		assert.Equal(t, []int64{12, 3}, []int64{delivered, failed})
		assert.Equal(t, began, h.Since)
		time.Sleep(relay.HistoryLength)
		h = p.pump.Metrics.History("test")
		assert.Empty(t, h.Minutes, "they are too old")
		assert.Equal(t, time.Now().Add(-relay.HistoryLength), h.Since)
	})
}

func sums(h relay.History) (delivered, failed int64) {
	for _, m := range h.Minutes {
		delivered, failed = delivered+m.Delivered, failed+m.Failed
	}
	return delivered, failed
}

// An outage of days with another error each time takes no more than its bounds.
func TestTheHistoryOfDeliveriesIsBounded(t *testing.T) {
	t.Parallel()
	respond := func(n int, _ []relay.Event) relaytest.Outcome {
		return relaytest.Outcome{Err: errors.New("error " + string(rune('a'+n%26)) + string(rune('a'+n/26%26)))}
	}
	pumping(t, respond, [][]relay.Event{relaytest.Events(1)}, func(t *testing.T, p *pumped) {
		time.Sleep(3 * 24 * time.Hour)
		synctest.Wait()
		h := p.pump.Metrics.History("test")
		assert.Len(t, h.Failures, 20)
		assert.True(t, h.Failures[0].Last.After(h.Failures[19].Last), "the newest come first")
		assert.NotEmpty(t, h.Minutes)
		assert.LessOrEqual(t, len(h.Minutes), int(relay.HistoryLength/time.Minute)+1)
		_, failed := sums(h)
		assert.Positive(t, failed)
	})
}

func TestTextsAreAlikeWithoutTheirNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "a": "a", "12": "0", "a1b22c333": "a0b0c0", "10 of 20": "0 of 0", "ü9": "ü0"} {
		assert.Equal(t, want, relay.Digitless(text))
	}
}
