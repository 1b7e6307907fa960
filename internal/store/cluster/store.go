package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// compareInterval is how often the logs are compared with what is known about them.
	compareInterval = time.Minute
	// closeTimeout bounds the writing of lazy values at the end.
	closeTimeout = 5 * time.Second
)

// Config says where a store is and who uses it.
type Config struct {
	// Journal must have its defaults, and a URL.
	Journal config.Journal
	// Dir is a folder on the relay's own disk, for notes on how far the logs reached.
	Dir string
	// Salvage is the folder for messages that are not what was written. Without one they are
	// named only.
	Salvage string
	// Version is that of the program.
	Version    string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Failed is told of a failure that only another start can mend. It may be nil.
	Failed func(error)
}

// Store is a prefix of streams on a cluster.
type Store struct {
	cfg      Config
	js       jetstream.JetStream
	log      *slog.Logger
	salvaged atomic.Int64 // bytes that this process kept
	rewinds  prometheus.Counter
	table    *Table

	opened    time.Time
	patience  time.Duration
	certainty time.Duration

	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	background sync.WaitGroup

	opening sync.Mutex // held while a log is opened
	logs    sync.Map   // *Log by name, added to by the holder of opening
}

var _ store.Store = (*Store)(nil)

// Open connects, and waits for servers that are starting. It refuses servers that
// acknowledge before anything is durable, streams of another layout, and those of a later
// version. ctx bounds the opening only.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	js, err := dial(ctx, cfg.Journal, cfg.Logger)
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: cfg, js: js, log: cfg.Logger, opened: time.Now(), patience: patience, certainty: certainty,
		rewinds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auditrelay_journal_rewinds_total", Help: "How often the external cluster lost the end of a log.",
		}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.stop()
		js.Conn().Close()
		return nil, err
	}
	cfg.Registerer.MustRegister(s.rewinds)
	connected := js.Conn().StatusChanged(nats.CONNECTED)
	s.background.Go(func() { s.watch(connected) })
	s.background.Go(s.table.writeLazily)
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	err := await(ctx, s.log, "what the journal's servers promise", s.checkPromises)
	if err != nil {
		return err
	}
	return await(ctx, s.log, "the journal's table", s.openTable)
}

// Table implements [store.Store].
func (s *Store) Table() store.Table { return s.table }

// Err says why nothing can be kept at present, or is nil.
func (s *Store) Err() error {
	if !s.js.Conn().IsConnected() {
		return errors.New("the servers of journal.url are out of reach")
	}
	return nil
}

// maxPayload is the present server's limit for a message.
func (s *Store) maxPayload() int { return int(s.js.Conn().MaxPayload()) }

// closedOr returns ErrClosed once the store is closed, and err until then.
func (s *Store) closedOr(err error) error {
	if s.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
		return store.ErrClosed
	}
	return err
}

// watch compares the logs with what is known, once a minute and after each reconnect.
func (s *Store) watch(connected chan nats.Status) {
	tick := time.NewTicker(compareInterval)
	defer tick.Stop()
	defer s.js.Conn().RemoveStatusListener(connected)
	for {
		select {
		case <-tick.C:
		case <-connected:
		case <-s.ctx.Done():
			return
		}
		if err := s.table.compare(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("comparing the table with what is known about it failed; it is tried again", "error", err)
		}
		for _, opened := range s.logs.Range {
			l := opened.(*Log)
			if err := l.compare(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log.Warn("comparing a log with what is known about it failed; it is tried again", "log", l.name, "error", err)
			}
		}
	}
}

// Close implements [store.Store].
func (s *Store) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.Err() == nil {
		if err := s.table.Sync(ctx); err != nil {
			s.log.Warn("some values of the table were not written at the end", "error", err)
		}
	}
	s.stop()
	s.js.Conn().Close()
	s.background.Wait()
	s.opening.Lock()
	defer s.opening.Unlock()
	failed := s.table.doubt.note.close()
	for _, opened := range s.logs.Range {
		failed = errors.Join(failed, opened.(*Log).note.close())
	}
	return failed
}
