package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ages"
	"github.com/auditrelay/auditrelay/internal/diskbudget"
	"github.com/auditrelay/auditrelay/internal/losses"
	"github.com/auditrelay/auditrelay/internal/positions"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// ErrFull means the disk budget is spent: nothing was kept. Space returns when sinks take
// their events, or somebody raises the budget.
var ErrFull = errors.New("journal is full")

// ErrUnavailable means the journal could not confirm a push. It may be on disk all the
// same: to be sure, the sender must push again, and may cause duplicates.
var ErrUnavailable = errors.New("journal is unavailable")

// ErrClosed means the journal is shutting down.
var ErrClosed = errors.New("journal is closed")

const (
	// recordTarget bounds a record before compression, except for a single large event;
	// the server may take less. Larger records share an fsync among more events, and take
	// longer to write.
	recordTarget = 1 << 20
)

// Journal is safe for concurrent use.
type Journal struct {
	// Losses names every lost position.
	Losses *losses.Ledger
	// Positions keeps how far each sink has come.
	Positions *positions.Positions

	conn   *streamserver.Conn
	cfg    config.Journal
	log    *slog.Logger
	stream jetstream.Stream
	made   int64 // when the stream was made, in ns since 1970; it tells streams of one name apart
	names  names
	sinks  []string // the configured ones
	// sources are the configured environments', without a bound on others.
	sources []string

	ages    ages.Ages
	budget  *diskbudget.Budget
	backlog backlog
	fills   filling
	sweeps  sweeps

	trimming sync.Mutex // held by who trims
	doubts   bool       // trimming is blocked, as the log says; guarded by trimming
	commits  *committer
	decoded  *record.Cache
	metrics  *metrics
	mended   atomic.Uint64      // pieces of files with a name: see nameMended
	stop     context.CancelFunc // ends the loops
	done     chan struct{}      // closed when the loops have ended
}

// names are those of the events' stream and its subject.
type names struct{ events, eventsSubject string }

func namesFor(prefix string) names {
	return names{events: streamserver.Layout(prefix).Events, eventsSubject: strings.ToLower(prefix) + ".events"}
}

// Options are a Journal's needs beside its configuration.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Version is the program's, as the streams' metadata names it.
	Version string
	// Sinks are the configured ones. A record is trimmed after each of them has had it.
	Sinks []string
	// Sources are those of the environments that may push. With one there is nobody to be
	// fair to.
	Sources []string
	// Failed, where set, is called once when nothing can be appended any more
	// until the journal is opened again on a new connection.
	Failed func(error)
	// Sealed, where set, is told of each durable record before its senders are, by several
	// goroutines at once. It must not block.
	Sealed func(Sealed)
	// Lost, where set, is called whenever acknowledged events turn out to be lost. It may
	// be called from several goroutines at once.
	Lost func()
}

// Open makes or opens the journal's streams on conn and starts to trim them.
// cfg must have its defaults. The conn stays the caller's to close.
func Open(ctx context.Context, conn *streamserver.Conn, cfg config.Journal, opts Options) (*Journal, error) {
	j := &Journal{
		conn: conn, cfg: cfg, log: opts.Logger,
		names: namesFor(cfg.StreamPrefix), sinks: opts.Sinks, sources: opts.Sources,
		decoded: record.NewCache(len(opts.Sinks)),
		metrics: newMetrics(opts.Registerer),
		sweeps:  sweeps{wake: make(chan struct{}, 1)},
		done:    make(chan struct{}),
	}
	if err := j.makeStream(ctx, streamserver.Metadata(opts.Version)); err != nil {
		return nil, err
	}
	var err error
	if j.Positions, err = positions.Open(ctx, conn, j.stream, cfg, opts.Sinks, j.log); err != nil {
		return nil, err
	}
	// Before anything is appended or read.
	j.Losses, err = losses.Open(ctx, conn, j.stream, cfg, losses.Options{
		Logger: opts.Logger, Registerer: opts.Registerer, Failed: opts.Failed, Lost: opts.Lost,
	})
	if err != nil {
		return nil, err
	}
	j.mended.Store(conn.Mendings())
	if err := streams.Await(ctx, j.log, "the journal's state", j.reportLosses); err != nil {
		return nil, err
	}
	if err := streams.Await(ctx, j.log, "the journal's state", j.lookAround); err != nil {
		return nil, err
	}
	j.commits = newCommitter(j, opts.Failed, opts.Sealed)
	opts.Registerer.MustRegister(newCollector(j), watermarkFailures(conn.Watermarks), unscrubbed(conn))
	j.startLoops()
	return j, nil
}

// lookAround notes where the stream stands, before anything is appended to it.
func (j *Journal) lookAround(ctx context.Context) error {
	info, err := j.info(ctx)
	if err != nil {
		return err
	}
	j.ages.Begin(info.State.LastSeq, ages.Now())
	j.budget = diskbudget.New(info.Config.MaxBytes, int64(info.State.Bytes), len(j.sources) == 1)
	j.backlog.begin(info.State, time.Now())
	return nil
}

// startLoops starts the trimming, until Close.
func (j *Journal) startLoops() {
	ctx, stop := context.WithCancel(context.Background())
	j.stop = stop
	var running sync.WaitGroup
	loops := []func(context.Context){j.trimLoop, j.sweepLoop}
	if j.Positions.Any() {
		loops = append(loops, j.inherit)
	}
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	go func() { running.Wait(); close(j.done) }()
}

// committed accounts for a durable record.
func (j *Journal) committed(record uint64, events, stored int, shares []diskbudget.Share) {
	j.committedEvents(record, events)
	if j.budget.Add(record, stored, shares) {
		j.sweeps.press()
	}
}

// makeStream makes or opens the events' stream.
func (j *Journal) makeStream(ctx context.Context, metadata map[string]string) error {
	err := streams.Await(ctx, j.log, "stream "+j.names.events, func(ctx context.Context) (err error) {
		j.stream, err = j.conn.JetStream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: j.names.events, Subjects: []string{j.names.eventsSubject},
			Description: "auditrelay: acknowledged events, many to a message",
			Metadata:    metadata,
			Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: max(1, j.cfg.Replicas),
			// At the budget the server refuses new messages; sweeps choose old ones to go.
			MaxBytes: int64(j.cfg.MaxBytes), Discard: jetstream.DiscardNew,
			// Longer than the retries of an append, so no retry is stored twice.
			Duplicates: 2 * commitTimeout,
			// Any replica may answer for a record; its readers expect a lagging one. Of the
			// other streams only the leader speaks.
			AllowDirect: true,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open stream %s: %w", j.names.events, err)
	}
	j.made = j.stream.CachedInfo().Created.UnixNano()
	return nil
}

// Append returns nil once the events of b are on disk: fsynced by the embedded
// server, or acknowledged by a quorum of the external one. On an error nothing
// may be acknowledged to the sender, though some of it may be on disk:
// ErrFull, ErrUnavailable, record.ErrTooLarge, ErrClosed or ctx's. b must not be changed before
// Append returns, and is not referred to after.
//
// Concurrent calls share commits: see committer.
func (j *Journal) Append(ctx context.Context, b *record.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.commits.append(b)
}

// MaxEvent is the present limit of an event with its attributes and labels, in bytes. A
// larger one is record.ErrTooLarge.
func (j *Journal) MaxEvent() int { return j.conn.PayloadLimit() }

// readLimit bounds one request for records, in bytes: some records, or one of the
// largest. Older records may be from a time when the server took more.
func (j *Journal) readLimit() int {
	return max(j.conn.MaxPayload(), recordTarget+streamserver.HeaderRoom) + fetchBytes
}

// Close stops trimming, and returns when all appends under way have ended.
// Later ones get ErrClosed.
func (j *Journal) Close() {
	j.commits.close()
	j.stop()
	<-j.done
	if err := j.Losses.Close(); err != nil {
		j.log.Warn("closing the journal failed", "error", err)
	}
}

// Usage is how much of the disk budget is spent.
type Usage struct {
	// Bytes and MaxBytes are of the events' stream. Undelivered is the part of Bytes still
	// owed to some sink, about.
	Bytes       int64 `json:"bytes"`
	MaxBytes    int64 `json:"budget_bytes"`
	Undelivered int64 `json:"undelivered_bytes"`

	Records uint64 `json:"records"`
	// Oldest and Newest are when these records were committed; zero without any.
	Oldest time.Time `json:"oldest,omitzero"`
	Newest time.Time `json:"newest,omitzero"`
	// ReplaySeconds is how long ago the oldest record was committed: how far back
	// a replay can reach.
	ReplaySeconds float64 `json:"replay_seconds"`
	// SecondsToFull is the time until undelivered events fill the budget, at the rate of the
	// last minutes; nil while they do not grow, and in the first two minutes.
	SecondsToFull *float64 `json:"seconds_to_full,omitempty"`
}

// Usage asks the server.
func (j *Journal) Usage(ctx context.Context) (Usage, error) {
	info, err := j.info(ctx)
	if err != nil {
		return Usage{}, err
	}
	return j.usage(info), nil
}

func (j *Journal) usage(info *jetstream.StreamInfo) Usage {
	u := Usage{
		Bytes: int64(info.State.Bytes), MaxBytes: info.Config.MaxBytes, Undelivered: j.budget.Undelivered(),
		Records: info.State.Msgs, Oldest: info.State.FirstTime, Newest: info.State.LastTime,
	}
	if u.Records > 0 {
		u.ReplaySeconds = max(0, time.Since(u.Oldest).Seconds())
	}
	if left := j.fills.secondsToFull(u.MaxBytes); !math.IsNaN(left) && !math.IsInf(left, 1) {
		u.SecondsToFull = &left
	}
	return u
}
