// Package app wires the rooms together from the configuration, starts them,
// and stops them in order. It has no logic of its own.
package app

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/control/traces"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/ingest"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// Options are what a relay needs besides its configuration.
type Options struct {
	Logger  *slog.Logger
	Version string
	// Started, if set, is called once with the relay's addresses, when it takes pushes.
	Started func(Addresses)
	// Socket, if set, is the listening socket of the pushes, where it outlives the process.
	Socket *Socket
	// Kinds are the program's own kinds of sinks.
	Kinds sinks.Kinds
	// Reloads change the configuration of the running relay. Without its Load it stays as it is.
	Reloads Reloads
}

// Addresses are HOST:PORT. Trail is empty unless the trail has a listener of its own. In a cluster
// only the relay that has control listens there, which may be later.
type Addresses struct{ Ingest, Admin, Trail string }

// Run runs a relay until ctx ends, a clean shutdown within the configured deadline, or
// until a part of it fails for good. cfg must have been validated.
func Run(ctx context.Context, cfg *config.Config, opts Options) error {
	return newProcess(cfg, opts).serveUntil(ctx, opts)
}

func newProcess(cfg *config.Config, opts Options) *process {
	r := &process{
		log: opts.Logger, version: opts.Version, reg: prometheus.NewRegistry(),
		stack:  stack{log: opts.Logger},
		failed: make(chan error, 1), up: make(chan struct{}), calm: make(chan struct{}),
		live:  map[string][]relay.Sink{},
		kinds: opts.Kinds, socket: opts.Socket, arrivals: received.New(time.Now),
		lastPushes: lastPushes{at: map[credentials.Environment]time.Time{}},
		reload:     newReloading(cfg, opts), couriers: couriers{working: map[string]bool{}, places: map[string]*place{}},
	}
	r.apply(cfg)
	r.turnPages(&config.Config{})
	r.reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo(opts.Version))
	return r
}

// serveUntil is Run.
func (r *process) serveUntil(ctx context.Context, opts Options) error {
	return r.run(ctx, r.start, func() {
		r.mu.Lock()
		at := r.addresses
		r.mu.Unlock()
		r.log.Info("relay is running", "version", opts.Version, "ingest", at.Ingest, "admin", at.Admin,
			"environments", len(r.cfg().Environments), "sinks", len(r.cfg().Sinks))
		if opts.Started != nil {
			opts.Started(at)
		}
		r.followReloads() // who is told of both hears of the start first
	})
}

// run starts, calls running, waits for ctx's end or a failure, and stops.
func (r *process) run(ctx context.Context, start func(context.Context) error, running func()) error {
	err := start(ctx)
	if err == nil {
		running()
		select {
		case <-ctx.Done():
			r.log.Info("shutting down", "within", r.cfg().ShutdownTimeout)
		case err = <-r.failed:
		}
	} else if ctx.Err() != nil {
		err = nil // told to stop while starting
	}
	if r.admin != nil {
		r.admin.Stopping()
	}
	r.ended = err
	stopping, cancel := context.WithTimeout(context.Background(), r.cfg().ShutdownTimeout)
	defer cancel()
	return errors.Join(err, r.stack.unwind(stopping))
}

// process is one running relay: the parts that each relay of a cluster has. Those that only one
// of them has at a time are in control.
type process struct {
	applied   atomic.Pointer[applied]
	reload    *reloading
	log       *slog.Logger
	version   string
	reg       *prometheus.Registry
	stack     stack
	failed    chan error    // takes the first failure of a part for good
	up        chan struct{} // closed once pushes are taken
	calm      chan struct{} // closed calmAfter up, for whatever reads much of the disk
	ended     error         // why it stops; set before the stack is unwound
	addresses Addresses     // Trail is guarded by mu

	admin        *admin.Handler
	private      secret.Text        // the generated token of the private pages
	connections  *connlimit.Metrics // of all listeners
	socket       *Socket            // of the pushes; nil if it does not outlive the process
	certificates *certificates      // nil without any
	store        store.Store
	homes        homes // the note of where the journal is kept, and of journals given up
	quarantine   *journal.Quarantine
	journal      *journal.Set
	letters      *deadletters.Store
	credentials  *credentials.Store
	damaged      chan credentials.Damage // of credentials, for the trail
	ingest       *ingest.Handler
	recent       *ingest.RecentSet // nil: repeated pushes are stored again
	lastPushes   lastPushes
	tracer       *traces.Tracer // nil: no traces are made
	arrivals     *received.Book // knows each configured environment
	kinds        sinks.Kinds
	couriers     couriers
	deliveries   *relay.Metrics
	control      *control
	console      atomic.Pointer[console.Server] // nil while the relay starts
	published    atomic.Pointer[web.Trail]      // nil while this relay does not write the trail
	visitors     *access.Access                 // of the console in the browser; nil: none is configured
	webURL       string                         // where that is found
	leave        context.CancelFunc             // ends this relay's part in the cluster
	work         work                           // the jobs that this relay does
	member       atomic.Pointer[string]         // its name in the cluster; nil on a disk

	mu   sync.Mutex
	live map[string][]relay.Sink // the instances of sinks that this relay runs, by name; guarded by mu
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
	if err := makeDataDir(r.cfg().DataDir); err != nil {
		return err
	}
	return startAll(ctx, r.startAdmin, r.startReloads, r.startCertificates, r.startTraces, r.startStore, r.startJournal, r.startLetters, r.startCredentials, r.startStatus,
		r.startWeb, r.startJobs, r.startRecent, r.startIngest, r.startActing)
}

func (r *process) startJournal(ctx context.Context) (err error) {
	isHere := func(ctx context.Context) error { return move.Check(ctx, r.store) }
	r.journal, err = journal.Open(ctx, r.store, r.cfg().Journal, journal.Options{
		Logger: r.log, Registerer: r.reg, Quarantine: r.quarantine, Sinks: r.sinkNames(), Sources: r.sources(),
		Shared: r.inCluster(), Others: r.othersTook, Epoch: r.recentEpoch, Failed: r.fail, Check: isHere,
	})
	if err != nil {
		return err
	}
	r.stack.push("journal", func(context.Context) error { r.journal.Close(); return nil })
	r.admin.AddCheck(admin.Check{Name: "journal", Probe: r.journalReady})
	r.admin.AddCheck(admin.Check{Name: "damage", Probe: r.damageRemark})
	r.admin.AddCheck(admin.Check{Name: "disk", Probe: r.diskRemark})
	r.admin.AddStatus("journal", func(ctx context.Context) (any, error) { return r.journal.Usage(ctx) })
	r.showCluster(r.journal.Positions)
	return nil
}

// inCluster reports whether other relays may have the same store.
func (r *process) inCluster() bool { return r.cfg().Journal.URL != "" }

func (r *process) sources() []string {
	all := make([]string, len(r.cfg().Environments))
	for i, e := range r.cfg().Environments {
		all[i] = relay.SourceOf(e.Project, e.Environment)
	}
	return all
}

func (r *process) sinkNames() []string {
	names := make([]string, len(r.cfg().Sinks))
	for i, sink := range r.cfg().Sinks {
		names[i] = sink.Name
	}
	return names
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "auditrelay_build_info", Help: "1, labelled by version."}, []string{"version", "go_version"})
	g.WithLabelValues(version, runtime.Version()).Set(1)
	return g
}
