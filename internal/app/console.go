package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/console"
	"github.com/auditrelay/auditrelay/internal/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// startConsole answers the command line. It is stopped before the sinks and the journal
// are.
func (r *process) startConsole(ctx context.Context) error {
	server, err := console.Listen(ctx, r.cfg.DataDir, console.Options{
		Journal: r.journal, Quarantine: r.quarantine, Letters: r.letters, Sinks: r.cfg.Sinks, Delivery: r.deliveries.Delivery, Open: r.openForReplay, Route: sinks.Route, Record: r.recordLoss,
		Credentials: r.credentials, Streaming: r.streaming, Desk: r.deskForPeople, Silences: r.silences,
		Timeline: r.timeline, Append: r.trail.Append, Event: r.auditEvent, ProveEvent: r.proveEvent, ListSpan: r.listSpan,
		ArchiveTrail: r.archiveTrail, RotateKey: r.rotateKey, Status: r.admin.Status, Logger: r.log,
	}, r.fail)
	if err != nil {
		return err
	}
	r.stack.push("console", server.Close)
	r.admin.AddStatus("sinks", func(ctx context.Context) (any, error) { return server.Sinks(ctx) })
	return nil
}

// startTimeline keeps an index of the trail, to answer questions about it.
func (r *process) startTimeline(context.Context) error {
	r.timeline = timeline.Open(timeline.Options{
		Path: filepath.Join(r.cfg.DataDir, timeline.FileName), Trail: r.trail, Logger: r.log,
		Looked: func(s timeline.Where) (time.Time, string) { return r.newest.Of(s.Project, s.Environment, s.Setting) },
	})
	r.stack.push("trail index", background(r.timeline.Keep))
	return nil
}

// recordLoss makes an entry of the trail, and so an event at every sink.
func (r *process) recordLoss(ctx context.Context, loss console.Loss) error {
	detail, err := withPerson(loss.Detail, loss.Person)
	if err != nil {
		return fmt.Errorf("encode the audit entry: %w", err)
	}
	subject := cmp.Or(loss.Subject, "journal")
	if loss.Sink != "" {
		subject = "sinks/" + loss.Sink
	}
	_, err = r.trail.Append(ctx, audit.Entry{
		Type: loss.Type, Project: cmp.Or(loss.Project, noProject), Environment: loss.Environment,
		Subject: subject, Time: time.Now(), Detail: detail,
	})
	return err
}

// withPerson encodes a detail with its person as one more member.
func withPerson(detail any, person workspace.Person) (json.RawMessage, error) {
	raw, err := json.Marshal(detail)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	if members["person"], err = json.Marshal(person); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// noProject stands in the trail for entries without a single project; no slug is so.
const noProject = "-"

// openForReplay returns a sink beside the live one. If the destination has one
// writer, as a file does, the live sink serves both, one delivery at a time: two
// writers would cut off each other's lines as torn ones.
func (r *process) openForReplay(cfg config.Sink) (relay.Sink, error) {
	if cfg.Exclusive() != nil {
		return lent{r.live[cfg.Name]}, nil
	}
	return sinks.Open(cfg, r.sinkDeps())
}

func (r *process) sinkDeps() sinks.Deps {
	return sinks.Deps{Logger: r.log, Registerer: r.reg, Kinds: r.kinds}
}

// lent is a sink; its owner closes it.
type lent struct{ relay.Sink }

func (lent) Close() error { return nil }
