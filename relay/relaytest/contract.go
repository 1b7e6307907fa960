// Package relaytest has the contract suite that every sink must pass, and fakes with faults for
// tests of what surrounds a sink.
//
// [Run] tests the promises of a sink (see [relay.Sink]) against a real destination. [Sink],
// [Source] and [DeadLetters] are kept in memory, for tests of a relay.Pump. [Events] makes
// realistic events.
package relaytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
)

// Harness tells [Run] how to make sinks of one kind.
type Harness struct {
	// New makes a fresh, empty destination and a sink for it. It registers their cleanup with
	// t; the sink's Close may have been called by then. New is called once per subtest, and
	// subtests run in parallel.
	New func(t *testing.T) Destination
	// Attributes names the CloudEvents attributes that arrive at the destination. The default
	// is those of relay.Event.Attributes, and datacontenttype.
	Attributes []string
	// MaxBody is the size of the largest body that the destination takes, in bytes, if it is
	// less than 256 KiB.
	MaxBody int
}

// Destination is a sink, a way to read what was delivered, and optional hooks that make the
// destination misbehave. The subtests of a hook that is nil are skipped.
type Destination struct {
	Sink relay.Sink
	// Arrived reads everything back from the destination, in its order.
	Arrived func() []Arrival
	// Secrets are the sink's credentials, which no error may contain.
	Secrets []string
	// Down makes the destination unreachable, and Up makes it reachable again, with everything
	// that arrived before. Both or neither must be set.
	Down, Up func()
	// Stall makes the destination read without ever answering, for the rest of the subtest.
	Stall func()
	// Refuse makes the destination refuse e for good, by changing e or by telling the
	// destination.
	Refuse func(e *relay.Event)
}

// Arrival is one event as the destination has it.
type Arrival struct {
	ID   string
	Body []byte
	// Attributes are the CloudEvents attributes by name, without the prefix and the escapes of
	// a binding.
	Attributes map[string]string
}

// Run tests the sinks of h against the contract of [relay.Sink].
func Run(t *testing.T, h Harness) {
	for name, check := range map[string]func(*testing.T, *subject){
		"acknowledged events are there": testAcknowledged,
		"order is kept":                 testOrder,
		"odd events arrive as they are": testOddEvents,
		"a redelivery carries the ids":  testRedelivery,
		"a cancelled context":           testCancelled,
		"cancelled on the way":          testCancelledOnTheWay,
		"closed":                        testClosed,
		"destination down":              testDown,
		"nothing sent late":             testNothingLate,
		"destination stalled":           testStalled,
		"close while stalled":           testCloseWhileStalled,
		"an event refused":              testRefused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, newSubject(t, h))
		})
	}
}

// subject is a sink under test.
type subject struct {
	Destination
	harness Harness
}

func newSubject(t *testing.T, h Harness) *subject {
	if h.MaxBody == 0 {
		h.MaxBody = 256 << 10
	}
	if h.Attributes == nil {
		h.Attributes = []string{
			"specversion", "id", "source", "type", "subject", "time",
			"project", "environment", "receivedtime", "datacontenttype",
		}
	}
	return &subject{Destination: h.New(t), harness: h}
}

// patience bounds what the contract calls "soon": far less than a timeout, and far more than a
// busy machine needs.
const patience = 30 * time.Second

// attempt bounds one of several deliveries.
const attempt = 10 * time.Second

// deliver delivers once, and checks what is true of every delivery: the events were not
// changed, and the error contains no secret.
func (s *subject) deliver(ctx context.Context, t *testing.T, events []relay.Event) error {
	t.Helper()
	before := deepCopy(events)
	err := s.Sink.Deliver(ctx, events)
	assert.True(t, slices.EqualFunc(before, events, equalEvents), "the sink changed the events it was given")
	s.checkError(t, err)
	return err
}

// mustDeliver makes a delivery that has to succeed.
func (s *subject) mustDeliver(t *testing.T, events []relay.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waiting.Stall)
	defer cancel()
	require.NoError(t, s.deliver(ctx, t, events))
}

// deliverUntilDone tries again, as a pump does, until the destination is back.
func (s *subject) deliverUntilDone(t *testing.T, events []relay.Event) {
	t.Helper()
	waiting.Until(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		defer cancel()
		err := s.deliver(ctx, t, events)
		return err == nil
	}, "the sink did not recover")
}

func (s *subject) checkError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	var partial *relay.PartialError
	if errors.As(err, &partial) {
		checkFailures(t, partial)
		for _, f := range partial.Failures {
			text += f.Err.Error()
		}
	}
	for _, secret := range s.Secrets {
		assert.False(t, strings.Contains(text, secret), "an error of the sink names a secret")
	}
}

func checkFailures(t *testing.T, partial *relay.PartialError) {
	t.Helper()
	assert.NotEmpty(t, partial.Failures, "a partial error names no failure")
	last := -1
	for _, f := range partial.Failures {
		assert.Greater(t, f.Index, last, "failures are in ascending order, each once")
		assert.Error(t, f.Err)
		last = f.Index
	}
}

// requireArrived checks that exactly the events in want arrived, each once, and in order within
// each source.
func (s *subject) requireArrived(t *testing.T, want []relay.Event) {
	t.Helper()
	got := map[string][]Arrival{}
	for _, a := range s.Arrived() {
		got[a.Attributes["source"]] = append(got[a.Attributes["source"]], a)
	}
	expected := map[string][]*relay.Event{}
	for i := range want {
		expected[want[i].Source] = append(expected[want[i].Source], &want[i])
	}
	for source, arrivals := range got {
		require.Contains(t, expected, source, "something arrived that was not sent, first %q", arrivals[0].ID)
	}
	for source, events := range expected {
		require.Equal(t, idsOf(events), arrivedIDs(got[source]), "ids arrived from %s", source)
		for i, e := range events {
			s.requireSame(t, e, got[source][i])
		}
	}
}

func (s *subject) requireSame(t *testing.T, e *relay.Event, a Arrival) {
	t.Helper()
	require.Equal(t, len(e.Body), len(a.Body), "length of the body of %s", e.ID)
	require.True(t, string(e.Body) == string(a.Body), "the body of %s is not as it was given", e.ID)
	want := map[string]string{"datacontenttype": e.ContentType}
	for name, value := range e.Attributes {
		want[name] = value
	}
	for _, name := range s.harness.Attributes {
		require.Equal(t, want[name], a.Attributes[name], "attribute %s of %s", name, e.ID)
	}
}

func idsOf(events []*relay.Event) []string {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return ids
}

func arrivedIDs(arrivals []Arrival) []string {
	ids := make([]string, len(arrivals))
	for i, a := range arrivals {
		ids[i] = a.ID
	}
	return ids
}

func deepCopy(events []relay.Event) []relay.Event {
	c := slices.Clone(events)
	for i := range c {
		c[i].Body = slices.Clone(c[i].Body)
		c[i].Labels = slices.Clone(c[i].Labels)
	}
	return c
}

func equalEvents(a, b relay.Event) bool {
	return a.ID == b.ID && a.Source == b.Source && a.Type == b.Type && a.Subject == b.Subject &&
		a.Time.Equal(b.Time) && a.Received.Equal(b.Received) && a.ContentType == b.ContentType &&
		a.Project == b.Project && a.Environment == b.Environment &&
		slices.Equal(a.Labels, b.Labels) && string(a.Body) == string(b.Body)
}
