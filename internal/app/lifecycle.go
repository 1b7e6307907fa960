package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The types of the entries about a relay's runs. All have the outline of its configuration
// as their state.
const (
	typeStarted  = "relay.started"
	typeReloaded = "relay.reloaded"
	typeStopped  = "relay.stopped"
)

// run is the Detail of these entries.
type run struct {
	meaning.Reading
	workspace.Attribution
	Version string    `json:"version"`
	Host    string    `json:"host,omitempty"`
	Started time.Time `json:"started"`
	// ConfigSHA256 is the hash of the canonical JSON of the configuration's outline, the
	// entry's After. The outline has no secrets, so neither has the hash.
	ConfigSHA256 string `json:"config_sha256"`
	// Last tells of the run before, in the entry of a start.
	Last *lastRun `json:"last_run,omitempty"`
}

// lastRun is how the run before ended.
type lastRun struct {
	Entry   int64     `json:"entry"` // of its stop, or else of its start
	At      time.Time `json:"at"`
	Stopped bool      `json:"stopped"` // false: it ended without an entry, as at a crash or a power cut
}

// lifecycle enters the starts, reloads and stops of this process into the trail.
type lifecycle struct {
	trail   audit.Log
	subject string

	mu     sync.Mutex
	config json.RawMessage // the outline, canonical; guarded by mu
	run    run             // guarded by mu
}

// runsWith takes the configuration that the process runs with.
func (l *lifecycle) runsWith(cfg *config.Config) error {
	raw, err := outlineOf(cfg)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.config, l.run.ConfigSHA256 = raw, jsontext.Hash(raw)
	return nil
}

// now is the outline of the configuration, and what the entries say of the process.
func (l *lifecycle) now() (json.RawMessage, run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config, l.run
}

// newLifecycle describes the process. Several relays may share a trail on an external
// cluster: there, the runs of each host are a resource of their own.
func (c *control) newLifecycle() (*lifecycle, error) {
	host, _ := os.Hostname() // without it, the entry names none
	l := &lifecycle{
		trail: c.trail, subject: "relay",
		run: run{Version: c.version, Host: host, Started: time.Now()},
	}
	if c.cfg().Journal.URL != "" {
		l.subject += "/" + host
	}
	return l, l.runsWith(c.cfg())
}

// outlineOf is the outline of a configuration, as canonical JSON.
func outlineOf(cfg *config.Config) (json.RawMessage, error) {
	raw, err := json.Marshal(cfg.Outline())
	if err == nil {
		raw, err = jsontext.Canonical(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("outline the configuration: %w", err)
	}
	return raw, nil
}

// startLifecycle enters the start once the relay takes pushes and the trail can be used. It
// enters the stop in its place among the stops: no push is taken any more, and the sinks
// still deliver. In a cluster, where others do both, it is entered as soon as the relay begins to
// stop. A crash leaves the entry of the start the newest one, and the next start says so.
func (c *control) startLifecycle(context.Context) error {
	l, err := c.newLifecycle()
	if err != nil {
		return err
	}
	entered := make(chan struct{})
	cancel := background(func(ctx context.Context) {
		select {
		case <-c.up:
		case <-ctx.Done():
			return
		}
		if c.insist(ctx, "entering the start into the audit trail", l.started) == nil {
			close(entered)
			c.enterReloads(ctx, l)
		}
	})
	if !c.inCluster() {
		c.stack.push("entries of the start and stop", func(ctx context.Context) error {
			c.enterStop(ctx, l, entered)
			return cancel(ctx)
		})
		return nil
	}
	// Another relay waits for control, and the other parts write their last meanwhile.
	entering := background(func(context.Context) {
		<-c.life.Done()
		c.enterStop(context.Background(), l, entered)
	})
	c.stack.push("entries of the start and stop", func(ctx context.Context) error { return errors.Join(entering(ctx), cancel(ctx)) })
	return nil
}

// enterReloads enters what each reload has changed, until ctx ends. Two that follow each other
// closely may be one entry. A crash before it leaves it to the entry of the next start.
func (c *control) enterReloads(ctx context.Context, l *lifecycle) {
	each(ctx, c.reload.done, func(struct{}) {
		if err := l.runsWith(c.cfg()); err != nil {
			c.log.Warn("a reload cannot be entered into the audit trail", "error", err)
			return
		}
		_ = c.insist(ctx, "entering a reload into the audit trail", l.reloaded) // the context's end
	})
}

// reloaded enters what differs from the configuration of the newest entry.
func (l *lifecycle) reloaded(ctx context.Context) error {
	_, err := audit.Update(ctx, l.trail, ownProject, "", l.subject, func(last audit.Entry, _ bool) (*audit.Entry, error) {
		config, d := l.now()
		reading, err := meaning.Read(meaning.RelayConfiguration, last.After, config)
		if err != nil || reading.Summary == "" {
			return nil, err
		}
		d.Reading, d.Attribution = reading, editedOutside()
		d.Summary = "the relay reloaded its configuration: " + d.Summary
		return l.entry(&audit.Entry{Type: typeReloaded, Before: last.After, After: config}, d)
	})
	return err
}

// editedOutside is who changed the configuration, as far as the relay knows.
func editedOutside() workspace.Attribution {
	return workspace.Attribution{
		Cause: workspace.CauseOutside, Actor: "unknown", ActorReason: "the configuration is a file, and the relay does not see who edits it",
	}
}

// Bounds of a stop. All of them together take at most a part of the time left to stop.
const (
	stopEntryWithin = 10 * time.Second // for the entry of the stop, on a slow disk or during an election
	stopWithin      = 2 * time.Second  // for a start's entry before it, and for the sinks to have it
)

// enterStop enters the stop, and waits a while for the sinks that work to have it. It
// holds the stop up no longer, and fails nothing: the next start tells of a missing entry,
// and the journal keeps an undelivered one for the sinks.
func (c *control) enterStop(ctx context.Context, l *lifecycle, entered <-chan struct{}) {
	select {
	case <-c.up:
	default: // it never took a push: its log says why
		return
	}
	ctx, cancel := portion(ctx, 3)
	defer cancel()
	_ = l.runsWith(c.cfg()) // its outline could be encoded when it was applied
	e, err := l.stopWhen(ctx, entered, c.ended)
	if err != nil {
		c.log.Warn("the stop could not be entered into the audit trail; the next start says that its entry is missing", "error", err)
		return
	}
	if c.inCluster() { // the next relay that has control signs it, and puts it into the journal
		return
	}
	ctx, cancel = context.WithTimeout(ctx, stopWithin)
	defer cancel()
	// A copy at a sink is then proven to its last entry. Where it fails, the trail signs at its
	// own stop, and the sinks get that checkpoint after the next start.
	_ = c.trail.Sign(ctx)
	for !c.haveAll(e.Index) && retry.Sleep(ctx, 20*time.Millisecond) == nil {
	}
}

// haveAll reports whether the entry and a checkpoint over it are in the journal, and each sink
// that works has all of the journal.
func (c *control) haveAll(index int64) bool {
	if c.forwarded.Load() <= index || c.covered.Load() <= index {
		return false
	}
	for _, name := range c.sinkNames() {
		if backlog, known := c.journal.Backlog(name); known && backlog.Events > 0 && c.deliveries.Delivery(name).FailingSince.IsZero() {
			return false
		}
	}
	return true
}

// started enters the start, with what changed in the configuration since the last entry.
func (l *lifecycle) started(ctx context.Context) error {
	_, err := audit.Update(ctx, l.trail, ownProject, "", l.subject, l.start)
	return err
}

func (l *lifecycle) start(last audit.Entry, found bool) (*audit.Entry, error) {
	config, d := l.now()
	d.Severity, d.Direction = meaning.Info, meaning.Neutral
	d.Summary = "the relay started, for the first time with this trail"
	e := &audit.Entry{Type: typeStarted, After: config}
	if found {
		d.Last = &lastRun{Entry: last.Index, At: last.Time, Stopped: last.Type == typeStopped}
		d.Summary = "the relay started, with the configuration it had before"
		reading, err := meaning.Read(meaning.RelayConfiguration, last.After, config)
		switch {
		case err != nil:
			return nil, err
		case len(last.After) == 0: // the entry with it is lost
			d.Severity, d.Direction = meaning.Medium, meaning.Unknown
			d.Summary = "the relay started; its configuration before is not known"
		case reading.Summary != "":
			e.Before, d.Reading, d.Attribution = last.After, reading, editedOutside()
			d.Summary = "the relay started with another configuration: " + d.Summary
		}
		if !d.Last.Stopped {
			d.Summary += "; the run before ended without a stop, as at a crash or a power cut"
			if d.Severity == meaning.Info || d.Severity == meaning.Low {
				d.Severity = meaning.Medium
			}
		}
	}
	return l.entry(e, d)
}

// stopWhen enters the stop after the start; failed is why the relay ended, nil where it
// was told to.
func (l *lifecycle) stopWhen(ctx context.Context, entered <-chan struct{}, failed error) (*audit.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, stopEntryWithin)
	defer cancel()
	select {
	case <-entered:
	case <-time.After(stopWithin):
		return nil, errors.New("its start could not be entered either")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return audit.Update(ctx, l.trail, ownProject, "", l.subject, func(audit.Entry, bool) (*audit.Entry, error) {
		config, d := l.now()
		d.Severity, d.Direction, d.Summary = meaning.Info, meaning.Neutral, "the relay was told to stop, and stopped"
		if failed != nil {
			d.Severity, d.Summary = meaning.High, "the relay stopped, as a part of it failed; its log says which"
		}
		return l.entry(&audit.Entry{Type: typeStopped, After: config}, d)
	})
}

func (l *lifecycle) entry(e *audit.Entry, d run) (*audit.Entry, error) {
	detail, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the entry about the relay's run: %w", err)
	}
	e.Project, e.Subject, e.Time, e.Detail = ownProject, l.subject, time.Now(), detail
	return e, nil
}
