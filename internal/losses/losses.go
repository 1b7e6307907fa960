// Package losses holds the events' stream against the relay's own notes, and names every
// lost position once.
//
// # A stream that goes back
//
// A server may lose the end of a stream, and give its positions to other records as if
// nothing had happened. So the relay notes the checksums of records, on its own disk for
// an external journal (package history). [Ledger.Compare] holds the stream against these
// notes at each start and reconnect, every minute, and at any unexpected record. A binary
// search finds the newest noted position with its own record. The ledger sets every sink
// beyond it back, names the acknowledged positions behind it, and changes its notes last:
// a crash on the way leaves the same finding. A replicated stream must say so for five
// seconds, as a new leader may lag.
//
// When an embedded server gives a position out twice, the relay does not acknowledge it,
// and ends: the files need mending, and the next start sets the end right.
//
// # Positions without a record
//
// The quarantine stream names every position without a readable record once, one subject
// per position, so a second sink or a second start adds nothing. The journal looks when it
// opens, each minute, and whenever a source sees the server pass over positions. A
// follower of the quarantine enters each into the audit trail (journal.quarantined); the
// trail's own last entry makes it once.
//
// Some damage is chance. More than ten damaged records, or more than 1 in 100, look like a
// mistake of ours or of the server's: the fuse blows (fuse.go), and sinks wait before the
// damage until a person accepts it. The acceptance is a message in the quarantine's stream,
// so it outlives restarts. An external journal has no fuse: the relay cannot restore lost
// records of other servers.
package losses

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// Ledger is the account of the lost positions. It is safe for concurrent use.
type Ledger struct {
	// History notes the records at the positions of the events' stream.
	History *history.History

	conn    *streamserver.Conn
	log     *slog.Logger
	stream  jetstream.Stream // of events
	made    int64            // its creation, in ns since 1970: its identity
	prefix  string
	layout  datadir.Layout
	subject string // of the quarantine
	failed  func(error)
	lost    func()
	metrics metrics
	fuse    *fuse

	// comparing is held during a comparison; see Lock.
	comparing sync.Mutex
	// reporting is held by a report: no other may name the same losses. The holder of
	// comparing does not take it.
	reporting sync.Mutex
}

// Options are the ledger's needs beside its streams.
type Options struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Failed, if set, is called when the events' stream is another one than at Open. Only
	// a new start can go on.
	Failed func(error)
	// Lost, if set, is called at each loss of acknowledged events, from any goroutine.
	Lost func()
}

type metrics struct {
	quarantined prometheus.Counter
	lost        prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		quarantined: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_journal_quarantined_records_total",
			Help: "Records that could not be read and were set aside.",
		}),
		lost: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auditrelay_journal_lost_records",
			Help: "Records that were damaged or lost on disk, over the journal's life; the quarantine names their positions.",
		}),
	}
	reg.MustRegister(m.quarantined, m.lost)
	return m
}

// Open makes or opens the quarantine, compares the events' stream with the history, and
// notes its end and its known damage. It comes before any append or read. cfg must have
// its defaults.
func Open(ctx context.Context, conn *streamserver.Conn, events jetstream.Stream, cfg config.Journal, opts Options) (*Ledger, error) {
	l := &Ledger{
		History: &history.History{},
		conn:    conn, log: opts.Logger, stream: events, made: events.CachedInfo().Created.UnixNano(),
		prefix: cfg.StreamPrefix, layout: streamserver.Layout(cfg.StreamPrefix), subject: strings.ToLower(cfg.StreamPrefix) + ".quarantine",
		failed: opts.Failed, lost: opts.Lost,
		metrics: newMetrics(opts.Registerer), fuse: newFuse(opts.Logger, opts.Registerer),
	}
	if err := l.makeQuarantine(ctx, max(1, cfg.Replicas)); err != nil {
		return nil, err
	}
	if err := l.openHistory(); err != nil {
		return nil, err
	}
	if err := streams.Await(ctx, l.log, "the end of the journal's stream", l.begin); err != nil {
		return nil, err
	}
	return l, streams.Await(ctx, l.log, "the quarantine", l.loadDamage)
}

// historyFile is in the folder of an external journal's watermarks.
const historyFile = "past"

// openHistory opens the file of an external stream's history. An embedded stream needs
// none, as a start verifies its files.
func (l *Ledger) openHistory() (err error) {
	if l.conn.Embedded() {
		return nil
	}
	tell := func(err error) { l.conn.Watermarks.Tell(historyFile, err) }
	l.History, err = history.Open(filepath.Join(l.conn.Watermarks.Dir(), historyFile), tell)
	return err
}

// begin compares the stream with the history, and notes its end.
func (l *Ledger) begin(ctx context.Context) error {
	if err := l.nameReplaced(ctx); err != nil {
		return err
	}
	if err := l.Compare(ctx); err != nil {
		return err
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	last := info.State.LastSeq
	l.History.Begin(last)
	sum, err := l.sumAt(ctx, last)
	if errors.Is(err, jetstream.ErrMsgNotFound) || last == 0 {
		return nil
	}
	if err == nil {
		l.History.Read(history.Place{Seq: last, Sum: sum})
	}
	return err
}

func (l *Ledger) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the journal's state: %w", err)
	}
	return info, nil
}

// Lock keeps the sinks' positions from being set back, until Unlock.
func (l *Ledger) Lock() { l.comparing.Lock() }

// Unlock ends a Lock.
func (l *Ledger) Unlock() { l.comparing.Unlock() }

// Close writes the history.
func (l *Ledger) Close() error {
	if err := l.History.Close(); err != nil {
		return fmt.Errorf("write the history of the journal's stream: %w", err)
	}
	return nil
}
