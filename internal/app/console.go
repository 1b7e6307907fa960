package app

import (
	"context"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// startConsole answers the command line. It is stopped before the sinks and the journal
// are.
func (r *process) startConsole(ctx context.Context) error {
	server, err := console.Listen(ctx, r.cfg.DataDir, console.Options{
		Journal: r.journal, Quarantine: r.quarantine, Letters: r.letters, Sinks: r.cfg.Sinks, Delivery: r.deliveries.Delivery, Open: r.openForReplay, Route: sinks.Route, Record: r.recordLoss,
		Credentials: r.credentials, Streaming: r.streaming, Desk: r.deskForPeople, Silences: r.silences,
		Timeline: r.timeline, Trail: r.trail, Event: r.auditEvent,
		ArchiveTrail: r.archiveTrail, Status: r.admin.Status, Logger: r.log,
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
	e, err := loss.Entry()
	if err == nil {
		_, err = r.trail.Append(ctx, e)
	}
	return err
}

// openForReplay returns a further instance of a sink. If the destination has one
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
