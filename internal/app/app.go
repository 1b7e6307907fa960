// Package app wires the rooms together from the configuration, starts them,
// and stops them in order. It has no logic of its own.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/dedup"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/quarantine"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// Options are what a relay needs besides its configuration.
type Options struct {
	Logger  *slog.Logger
	Version string
	// Started, if set, is called once with the relay's addresses, when it takes pushes.
	Started func(Addresses)
	// Kinds are the program's own kinds of sinks.
	Kinds sinks.Kinds
}

// Addresses are HOST:PORT. Trail is empty unless the trail has a listener of its own.
type Addresses struct{ Ingest, Admin, Trail string }

// Run runs a relay until ctx ends, a clean shutdown within the configured deadline, or
// until a part of it fails for good. cfg must have been validated.
func Run(ctx context.Context, cfg *config.Config, opts Options) error {
	r := &process{
		cfg: cfg, log: opts.Logger, version: opts.Version, reg: prometheus.NewRegistry(),
		stack:  stack{log: opts.Logger},
		failed: make(chan error, 1), up: make(chan struct{}),
		live:  map[string]relay.Sink{},
		kinds: opts.Kinds, arrivals: newArrivals(cfg.Environments),
	}
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(opts.Version), diskFree(cfg.DataDir))
	return r.run(ctx, r.start, func() {
		r.log.Info("relay is running", "version", opts.Version, "ingest", r.addresses.Ingest, "admin", r.addresses.Admin,
			"environments", len(cfg.Environments), "sinks", len(cfg.Sinks))
		if opts.Started != nil {
			opts.Started(r.addresses)
		}
	})
}

// run starts, calls running, waits for ctx's end or a failure, and stops.
func (r *process) run(ctx context.Context, start func(context.Context) error, running func()) error {
	err := start(ctx)
	if err == nil {
		running()
		select {
		case <-ctx.Done():
			r.log.Info("shutting down", "within", r.cfg.ShutdownTimeout)
		case err = <-r.failed:
		}
	} else if ctx.Err() != nil {
		err = nil // told to stop while starting
	}
	if r.admin != nil {
		r.admin.Stopping()
	}
	r.ended = err
	stopping, cancel := context.WithTimeout(context.Background(), r.cfg.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, r.stack.unwind(stopping))
}

// process is one running relay.
type process struct {
	cfg       *config.Config
	log       *slog.Logger
	version   string
	reg       *prometheus.Registry
	stack     stack
	failed    chan error    // takes the first failure of a part for good
	up        chan struct{} // closed once pushes are taken
	ended     error         // why it stops; set before the stack is unwound
	forwarded atomic.Int64  // how many entries of the trail are in the journal
	covered   atomic.Int64  // how many of them have a checkpoint there
	addresses Addresses

	admin        *admin.Handler
	private      secret.Text        // the generated token of the private pages
	connections  *connlimit.Metrics // of all listeners
	certificates *certificates      // nil without any
	store        store.Store
	homes        homes       // the note of where the journal is kept, and of journals given up
	turn         *lease.Turn // the right to do what only one relay of a cluster does; nil on a disk
	quarantine   *quarantine.Ledger
	journal      *journal.Journal
	letters      *deadletters.Store
	trail        *audit.Trail
	files        *tiles.Keeper // of the trail; nil before it is started
	timeline     *timeline.Index
	credentials  *credentials.Store
	newest       workspace.Newest                     // looks at the settings and the streaming config
	reconciler   atomic.Pointer[streaming.Reconciler] // nil until it looks after the streaming config
	desk         atomic.Pointer[workspace.Desk]       // nil until people may act on the workspace
	recent       *dedup.Set                           // nil: repeated pushes are stored again
	tracer       *traces.Tracer                       // nil: no traces are made
	spans        *eventproof.Keeper                   // nil: no spans are made
	arrivals     *received.Book                       // knows each configured environment
	silences     *health.Silences
	health       *health.Keeper
	kinds        sinks.Kinds
	deliveries   *relay.Metrics
	live         map[string]relay.Sink // by name; not changed once the sinks are started
}

// fail ends the relay. Only the first failure counts.
func (r *process) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

// start starts the parts, each on those before it: pushes are taken before the provider
// is told to send them, and the stop order is the reverse.
func (r *process) start(ctx context.Context) error {
	if err := durable.MakeDir(r.cfg.DataDir); err != nil {
		return fmt.Errorf("make data_dir: %w", err)
	}
	for _, part := range []func(context.Context) error{
		r.startAdmin, r.startCertificates, r.startTraces, r.startStore, r.startJournal, r.startLetters, r.startTrail, r.noteLogs, r.startTiles, r.startCredentials,
		r.startTimeline, r.startStatus, r.startSinks, r.startSilences, r.startConsole, r.startForwarding, r.startLifecycle, r.startSpans, r.startQuarantineWatch,
		r.startHealth, r.startRecent, r.startIngest, r.startControl, r.startHeartbeat,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	r.admin.Running()
	close(r.up)
	return nil
}

func (r *process) startJournal(ctx context.Context) (err error) {
	r.journal, err = journal.Open(ctx, r.store, r.cfg.Journal, journal.Options{
		Logger: r.log, Registerer: r.reg, Quarantine: r.quarantine,
		Sinks: r.sinkNames(), Sources: r.sources(), Turn: r.turn, Sealed: r.makeSpans(),
	})
	if err != nil {
		return err
	}
	r.stack.push("journal", func(context.Context) error { r.journal.Close(); return nil })
	r.admin.AddCheck(admin.Check{Name: "journal", Probe: r.journalReady})
	r.admin.AddCheck(admin.Check{Name: "damage", Probe: r.damageRemark})
	r.admin.AddStatus("journal", func(ctx context.Context) (any, error) { return r.journal.Usage(ctx) })
	return nil
}

func (r *process) sources() []string {
	all := make([]string, len(r.cfg.Environments))
	for i, e := range r.cfg.Environments {
		all[i] = relay.SourceOf(e.Project, e.Environment)
	}
	return all
}

func (r *process) sinkNames() []string {
	names := make([]string, len(r.cfg.Sinks))
	for i, sink := range r.cfg.Sinks {
		names[i] = sink.Name
	}
	return names
}

// closeTrail takes an unusable trail for a warning: it was reported while the relay
// ran, and stopping is no failure of the relay.
func (r *process) closeTrail(ctx context.Context) error {
	err := r.trail.Stop(ctx)
	r.finishTiles(ctx)
	err = errors.Join(err, r.trail.Close(ctx))
	if errors.Is(err, audit.ErrUnavailable) {
		r.log.Warn("the audit trail was not signed to its end; the next start signs it", "error", err)
		return nil
	}
	return err
}

// startTrail never fails because of the trail. The trail names its own damage, and an
// unusable one is tried again while events are taken and delivered.
func (r *process) startTrail(ctx context.Context) (err error) {
	o := TrailOptions(r.cfg)
	o.Heartbeat = *r.cfg.Audit.Heartbeat
	o.Logger, o.Registerer = r.log, r.reg
	opened, err := r.addWitnesses(&o)
	if err != nil {
		return err
	}
	if r.trail, err = audit.Open(ctx, r.store, o); err != nil {
		return err
	}
	opened(r.trail)
	r.stack.push("audit trail", r.closeTrail)
	r.watchTrail(ctx)
	r.admin.AddCheck(admin.Check{Name: "audit trail", Probe: func(context.Context) (string, error) { return r.trail.Remark(), nil }})
	r.admin.AddStatus("trail", func(context.Context) (any, error) {
		return map[string]any{
			"entries": r.trail.Size(), "public_key": r.trail.PublicKey(), "generations": r.trail.Generations(), "state": r.trail.Remark(),
			"heartbeat_gaps": r.trail.Gaps(statusGaps),
		}, nil
	})
	return nil
}

// watchTrail has the trail's logs read back now and then, as all others are: what is lost while
// the relay runs is named before the next start.
func (r *process) watchTrail(ctx context.Context) {
	for _, name := range []string{audit.EntriesLog, audit.CheckpointsLog} {
		log, err := r.store.Log(ctx, name, store.Options{})
		if err == nil {
			err = r.quarantine.Watch(ctx, name, log)
		}
		if err != nil {
			r.log.Warn("a log of the audit trail is not read back while the relay runs", "log", name, "error", err)
		}
	}
}

// statusGaps bounds the gaps between heartbeats in /status.
const statusGaps = 10

func newArrivals(environments []config.Environment) *received.Book {
	book := received.New(time.Now)
	for _, e := range environments {
		book.Of(credentials.Environment{Project: e.Project, Environment: e.Environment})
	}
	return book
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "auditrelay_build_info", Help: "1, labelled by version."}, []string{"version", "go_version"})
	g.WithLabelValues(version, runtime.Version()).Set(1)
	return g
}
