package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// journal is a running relay with many events, and a file sink's copy of them.
type journal struct {
	*show
	relay   *rig.Relay
	dir     string
	key     string // the trail's, as the relay states it
	copy    *sinkCopy
	last    time.Time // when the last push was acknowledged
	spans   []span
	bundles []string // files, by sample
}

// span is an entry of the type events.span.
type span struct {
	Index  int64           `json:"index"`
	Detail eventproof.Span `json:"detail"`
}

// provenEvents is how many events are proven one by one.
const provenEvents = 20

// ofJournal makes a journal of many events in a running relay, and has its events, its
// spans and its /tlog/ proven.
func (s *show) ofJournal() {
	j := &journal{show: s, dir: filepath.Join(s.dir, "journal")}
	j.copy = newSinkCopy(filepath.Join(j.dir, "events.jsonl"), s.events, samples(s.events))
	defer j.close()
	for _, step := range []struct {
		name string
		do   func() (string, error)
	}{
		{"relay", j.start}, {"events pushed", j.load}, {"file sink", j.delivered}, {"events.span", j.covered},
	} {
		if !s.step(step.name, step.do) {
			return // the others need it
		}
	}
	s.step("trail prove-event", j.proveEvents)
	s.step("its --verify", j.verifyEvents)
	s.step("changed bundles", j.changedBundles)
	s.step("trail verify-span", j.verifySpan)
	s.step("trail verify --url", j.verifyLive)
	s.step("tessera fsck, live", j.fsckLive)
}

// close ends the relay. After a failure its files stay, so that they can be examined.
func (j *journal) close() {
	if j.relay != nil {
		j.relay.Close()
	}
	if j.failed == 0 {
		_ = os.RemoveAll(j.dir)
	}
}

func (j *journal) start() (string, error) {
	var err error
	if j.relay, err = rig.NewRelay(j.ctx, j.binary, j.dir); err != nil {
		return "", err
	}
	config := fmt.Sprintf(`data_dir: %q
ingest: {listen: %q, anonymous: proof/journal}
admin: {listen: %q}
journal: {max_bytes: 50GiB}
audit: {serve: {public: true}, spans: {interval: 1s, events: %d}}
environments: [{project: proof, environment: journal}]
sinks:
  - {name: file, file: {path: %q, no_sync: true, rotate_bytes: -1, rotate_every: -1s}}
`, j.relay.DataDir(), j.relay.Ingest, j.relay.Admin, spanEvents, j.copy.path)
	start := time.Now()
	if err := j.relay.Start(j.ctx, config, time.Minute); err != nil {
		return "", err
	}
	return "ready in " + time.Since(start).Round(time.Millisecond).String(), j.readKey()
}

// spanEvents is about how many events a span has.
const spanEvents = 100_000

func (j *journal) readKey() error {
	var status struct {
		Trail struct {
			PublicKey string `json:"public_key"`
		} `json:"trail"`
	}
	_, text, err := j.relay.Ask(j.ctx, "/status")
	if err == nil {
		err = json.Unmarshal([]byte(text), &status)
	}
	if err == nil && status.Trail.PublicKey == "" {
		err = errors.New("it states no public key")
	}
	if err != nil {
		return fmt.Errorf("read the relay's /status: %w", err)
	}
	j.key = status.Trail.PublicKey
	return nil
}

// onTrail runs a command of the trail against the relay.
func (j *journal) onTrail(args ...string) (string, error) {
	return j.command(nil, j.binary, append(append([]string{"trail"}, args...), "--config", filepath.Join(j.dir, "relay.yaml"))...)
}

// delivered waits until the sink's copy has every event.
func (j *journal) delivered() (string, error) {
	var failed error
	err := waiting.For(j.ctx, func() any { return j.copy.at }, func() bool {
		failed = j.copy.read()
		return failed != nil || j.copy.missing == 0 || j.relay.Process().Ended()
	})
	if err = errors.Join(err, failed); err == nil && j.copy.missing > 0 {
		err = j.relay.Process().Unexpected()
	}
	return fmt.Sprintf("has all %d, %d MB, %v after the last push", j.events, j.copy.at>>20, time.Since(j.last).Round(time.Millisecond)), err
}

// covered waits until the spans have the last event. Since a span begins where the previous one
// ends, they then have all.
func (j *journal) covered() (string, error) {
	last, err := j.writeSample(len(j.copy.samples) - 1)
	if err != nil {
		return "", err
	}
	var reason error
	err = waiting.For(j.ctx, func() any { return j.spansState() }, func() bool {
		_, reason = j.onTrail("prove-event", last)
		return reason == nil || j.relay.Process().Ended()
	})
	if err = errors.Join(err, reason); err != nil {
		return "", err
	}
	after := time.Since(j.last)
	if err := j.readSpans(); err != nil {
		return "", err
	}
	events, err := j.spansHold()
	return fmt.Sprintf("%d entries cover %d events, the relay's own among them, without a gap; the last one pushed was covered %v after its push",
		len(j.spans), events, after.Round(time.Millisecond)), err
}

// spansState is what the relay itself says about its spans.
func (j *journal) spansState() string {
	var status struct {
		Spans json.RawMessage `json:"spans"`
	}
	if _, text, err := j.relay.Ask(j.ctx, "/status"); err == nil {
		_ = json.Unmarshal([]byte(text), &status) // if it cannot be read, it shows no progress
	}
	return string(status.Spans)
}

func (j *journal) readSpans() error {
	file := filepath.Join(j.dir, "spans.jsonl")
	if _, err := j.onTrail("export", "--type", eventproof.Type, "--file", file); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var s span
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return fmt.Errorf("read an entry of the type %s: %w", eventproof.Type, err)
		}
		j.spans = append(j.spans, s)
	}
	return nil
}

// spansHold counts the events of the spans, and refuses a gap.
func (j *journal) spansHold() (events int64, err error) {
	next := uint64(1)
	for _, s := range j.spans {
		if s.Detail.First != next || len(s.Detail.Missing) > 0 {
			return 0, fmt.Errorf("entry %d covers the positions from %d to %d and misses %v; the one before ends at %d",
				s.Index, s.Detail.First, s.Detail.Last, s.Detail.Missing, next-1)
		}
		next, events = s.Detail.Last+1, events+s.Detail.Events
	}
	if events < int64(j.events) {
		err = fmt.Errorf("%d entries cover %d of the %d events", len(j.spans), events, j.events)
	}
	return events, err
}

// verifyLive verifies the trail served by the running relay.
func (j *journal) verifyLive() (string, error) {
	return j.command(nil, j.binary, "trail", "verify", "--url", "http://"+j.relay.Admin+"/tlog/", "--key", j.key)
}

// fsckLive has the other project's tool read the running relay.
func (j *journal) fsckLive() (string, error) {
	if _, err := os.Stat(j.fsckTool()); err != nil {
		return "", errSkipped{"fsck cannot be had: see above"}
	}
	key := filepath.Join(j.dir, "trail.pub")
	if err := os.WriteFile(key, []byte(j.key+"\n"), 0o600); err != nil {
		return "", err
	}
	err := j.fsckAccepts(time.Minute, key, "http://"+j.relay.Admin+"/tlog/0/", int64(len(j.spans)))
	return "v1.0.4 accepts /tlog/0/ of the running relay, in " + j.took.Round(time.Millisecond).String(), err
}

// verifySpan compares the span in the middle with the sink's copy. With one changed event
// the copy lacks just this one.
func (j *journal) verifySpan() (string, error) {
	s := j.spans[len(j.spans)/2]
	list := filepath.Join(j.dir, "span.jsonl")
	if _, err := j.onTrail("list-span", strconv.FormatInt(s.Index, 10), "--file", list); err != nil {
		return "", err
	}
	listed := j.took
	compare := func() (string, error) {
		return j.command(nil, j.binary, "trail", "verify-span", list, j.copy.path, "--key", j.key)
	}
	if _, err := compare(); err != nil {
		return "", err
	}
	compared := j.took
	place := j.copy.within(&s.Detail)
	if place == nil {
		return "", errors.New("no event was kept of that span")
	}
	if err := j.copy.flip(place); err != nil {
		return "", err
	}
	out, err := compare()
	if err == nil || !strings.Contains(out, fmt.Sprintf("1 of the %d events", s.Detail.Events)) {
		return "", fmt.Errorf("the copy with a changed event is not refused for one event: %s", tail(out))
	}
	return fmt.Sprintf("the sink's copy has all %d events of entry %d, in %v (list-span %v); with one changed byte it lacks 1",
		s.Detail.Events, s.Index, compared.Round(time.Millisecond), listed.Round(time.Millisecond)), j.copy.flip(place)
}
