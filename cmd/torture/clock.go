package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// clockJumps moves the relay's wall clock by an hour, to and fro: under load,
// while a sink is gone and the journal is trimmed, and between two runs.
func clockJumps(ctx context.Context, t *trial) error {
	binary, err := t.clock.Wait(ctx)
	var none *rig.NoClockError
	if errors.As(err, &none) {
		return &skip{none.Reason}
	}
	if err != nil {
		return err
	}
	// With this budget a segment has 4 MiB. At the trim, what reached every sink before Kafka went
	// is older than the replay window, by the relay's own clock: it does not jump. The trail names
	// events by spans of a second, since those that it has not named yet are not trimmed.
	s, err := t.newScene(ctx, setting{
		rate: t.rate / 2, more: "journal: {max_bytes: 128MiB, replay_window: 30s}\naudit: {spans: {interval: 1s}}\n",
	})
	if err != nil {
		return err
	}
	defer s.close()
	s.binary = binary
	c := &clock{scene: s}
	for _, phase := range []func(context.Context) error{c.jumpUnderLoad, c.jumpBetweenLives} {
		if err := phase(ctx); err != nil {
			return fmt.Errorf("%+d s ahead: %w", c.ahead/time.Second, err)
		}
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	return c.check(ctx)
}

// clock is a scene whose relay's clock can be moved.
type clock struct {
	*scene
	ahead time.Duration // of the machine's
	jumps int
}

// jumpUnderLoad is one run with jumps. Kafka is gone from its first full segments on to its
// end, so trimming meets segments it may remove, and others it must keep.
func (c *clock) jumpUnderLoad(ctx context.Context) error {
	if err := c.startReady(ctx); err != nil {
		return err
	}
	oldest, err := c.fullSegment(ctx)
	if err != nil {
		return err
	}
	if err := c.steady(ctx); err != nil {
		return err
	}
	c.kafkaProxy.set(fault{refuse: true})
	for _, by := range []time.Duration{time.Hour, -time.Hour, -time.Hour, time.Hour, time.Hour} {
		if err := c.jump(ctx, by); err != nil {
			return err
		}
		if err := c.alive(ctx); err != nil {
			return err
		}
	}
	// At +1h. The relay looks each minute for what it may trim.
	if err := c.until(ctx, "the oldest segment of the journal is trimmed", func() bool {
		_, err := os.Stat(oldest)
		return errors.Is(err, os.ErrNotExist)
	}); err != nil {
		return err
	}
	if err := c.alive(ctx); err != nil {
		return err
	}
	c.kafkaProxy.set(fault{})
	return c.jump(ctx, -time.Hour)
}

// fullSegment waits until the journal has a segment that nothing is added to, and that every
// sink has, as soon as they keep pace. Only whole segments are trimmed.
func (c *clock) fullSegment(ctx context.Context) (oldest string, _ error) {
	for {
		all, err := c.files().Segments(eventsLog)
		if err != nil {
			return "", err
		}
		if len(all) > 2 {
			return all[0], nil
		}
		if err := c.waitAcknowledged(ctx, c.sim.Counts().Acknowledged+1); err != nil {
			return "", err
		}
	}
}

// jumpBetweenLives restarts with other clocks, by kill and by shutdown in turn,
// while Kafka is owed something.
func (c *clock) jumpBetweenLives(ctx context.Context) error {
	rng := c.t.random()
	for i, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		c.kafkaProxy.set(fault{refuse: true})
		if err := c.waitAcknowledged(ctx, c.sim.Counts().Acknowledged+1+rng.Uint64N(uint64(c.t.rate))); err != nil {
			return err
		}
		if i%2 == 0 {
			c.relay.kill()
		} else if err := c.relay.stop(); err != nil {
			return err
		}
		c.kafkaProxy.set(fault{})
		c.env = []string{rig.AtClock(ahead)}
		c.ahead = ahead
		c.t.row.rounds++
		if err := c.startReady(ctx); err != nil {
			return err
		}
		if err := c.alive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// jump moves the clock by an hour. Before and after it somebody points an environment
// elsewhere, so that its credential is rotated close to the jump.
func (c *clock) jump(ctx context.Context, by time.Duration) error {
	if err := c.pointElsewhere(ctx); err != nil {
		return err
	}
	signal := rig.ClockAhead
	if by < 0 {
		signal = rig.ClockBack
	}
	if err := c.relay.cmd.Process.Signal(signal); err != nil {
		return err
	}
	c.ahead += by
	c.jumps++
	c.t.row.rounds++
	c.t.progress("the clock is %+.0f h ahead, after %d events", c.ahead.Hours(), c.sim.Counts().Acknowledged)
	return nil
}

// pointElsewhere makes an environment stream to nobody. Its events wait there until the
// relay corrects the config, with a new credential.
func (c *clock) pointElsewhere(ctx context.Context) error {
	client, err := management.New(management.Options{
		BaseURL: c.api, KeyID: workspacesim.DemoKeyID, Secret: secret.New(workspacesim.DemoSecret),
	})
	if err != nil {
		return err
	}
	e := c.environments[c.jumps%len(c.environments)]
	_, err = client.SetEventLogStreaming(ctx, e.Project, e.Environment, management.Shape{Type: management.Datadog, Site: "US"}, secret.New("0123456789abcdef0123456789abcdef"))
	return err
}

// alive waits until the clock's offset is seen at a sink, and all of the relay's work
// goes on: it takes pushes from every environment, looks at settings and streaming
// configs, and corrects them.
func (c *clock) alive(ctx context.Context) error {
	if err := c.until(ctx, "a delivered event has the time of the moved clock", func() bool {
		at, err := newestReceived(c.file.Path)
		return err == nil && at.Sub(time.Now().Add(c.ahead)).Abs() < time.Minute
	}); err != nil {
		return err
	}
	before := c.pulse(ctx)
	return c.until(ctx, "every part goes on", func() bool {
		now := c.pulse(ctx)
		for i := range now {
			if now[i] <= before[i] {
				return false
			}
		}
		matches, all := sumOf(c.metrics(ctx), `auditrelay_streaming_as_desired`)
		return all == len(c.environments) && int(matches) == all
	})
}

// pulse returns numbers that grow while the relay works: looks, and events acknowledged by
// environment.
func (c *clock) pulse(ctx context.Context) []float64 {
	text := c.metrics(ctx)
	settings, _ := sumOf(text, "auditrelay_settings_looks_total")
	streaming, _ := sumOf(text, `auditrelay_streaming_looks_total{result="ok"`)
	counts := []float64{settings, streaming}
	for _, l := range c.sim.Ledgers() {
		counts = append(counts, float64(l.Counts.Acknowledged))
	}
	return counts
}

func (s *scene) metrics(ctx context.Context) string {
	_, text := s.ask(ctx, "/metrics")
	return text
}

// sumOf adds up the samples whose name and labels begin with prefix.
func sumOf(metrics, prefix string) (sum float64, samples int) {
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		fields := strings.Fields(line)
		if n, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			sum += n
			samples++
		}
	}
	return sum, samples
}

// newestReceived reads the time of receipt of the last event delivered to a file.
func newestReceived(path string) (time.Time, error) {
	text, err := lastBytes(path, 256<<10)
	if err != nil {
		return time.Time{}, err
	}
	lines := bytes.Split(text, []byte{'\n'})
	for i := len(lines) - 2; i >= 0; i-- { // the last is not whole, or empty
		var event struct {
			Received time.Time `json:"receivedtime"`
		}
		if json.Unmarshal(lines[i], &event) == nil && !event.Received.IsZero() {
			return event.Received, nil
		}
	}
	return time.Time{}, errors.New("no event is delivered yet")
}

func lastBytes(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-most)
	text := make([]byte, info.Size()-from)
	_, err = f.ReadAt(text, from)
	return text, err
}

// check examines what is left: order, refusals, and a trim.
func (c *clock) check(ctx context.Context) error {
	if err := c.inOrder(ctx); err != nil {
		return err
	}
	dropped := uint64(0)
	for _, l := range c.sim.Ledgers() {
		dropped += l.Counts.Dropped
	}
	if dropped > 0 {
		return fmt.Errorf("%d events were refused for good", dropped)
	}
	gone := store.Pos(0)
	if err := c.files().Read(ctx, eventsLog, func(item store.Item) error {
		if g := item.Gap; g != nil && g.Why == store.Trimmed {
			gone += g.To - g.From + 1
		}
		return nil
	}); err != nil {
		return err
	}
	c.t.remark("%d jumps in a life, 3 between lives; received times at the sink jumped; %d records trimmed; order kept; peak RSS %d MiB",
		c.jumps, gone, c.peak)
	if gone == 0 {
		return errors.New("the journal was never trimmed, so nothing is proven about that")
	}
	return nil
}

// inOrder compares two sinks: both got the events first in the journal's order, so in the same
// one.
func (c *clock) inOrder(ctx context.Context) error {
	nats, err := firsts(ctx, c.nats)
	if err != nil {
		return err
	}
	file, err := firsts(ctx, c.file)
	if err != nil {
		return err
	}
	for i := range min(len(nats), len(file)) {
		if nats[i] != file[i] {
			return fmt.Errorf("the order differs at event %d: nats got %s, file got %s", i, nats[i], file[i])
		}
	}
	return nil
}

// firsts returns the simulator's events at a destination in order, each once.
func firsts(ctx context.Context, d readback.Destination) ([]string, error) {
	var tally workspacesim.Tally
	var ids []string
	err := d.Read(ctx, func(id string, _ []byte) {
		if before := tally.Unique; tally.Add(id) && tally.Unique > before {
			ids = append(ids, id)
		}
	})
	return ids, err
}
