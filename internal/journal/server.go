package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	// pingInterval is how often an external server is asked whether it is there.
	pingInterval = 2 * time.Second
	// reconnectWait is the wait between two rounds of all external servers.
	reconnectWait = 500 * time.Millisecond
	// externalDir is the folder in the data directory for what the relay knows of
	// external streams, by their prefix.
	externalDir = "external"
)

// Conn is the relay's connection to JetStream: to a server of its own in the
// process, or to an external cluster.
type Conn struct {
	// JetStream is safe for concurrent use.
	JetStream jetstream.JetStream
	// Mended is what was set right in the embedded server's files before it
	// first read them.
	Mended []datadir.Mending
	// LetGo are journals that were given up by a command, as the configuration no
	// longer names them.
	LetGo []LetGo

	nc       *nats.Conn
	embedded *datadir.Server // nil when external
	lock     *os.File        // on the data directory; nil when external
	dataDir  string          // empty when external
	marks    *datadir.Watermarks
}

// Connect starts the embedded server on dataDir, or dials cfg.URL where it is
// set, and waits for servers that are not there yet. ctx bounds the connecting only.
func Connect(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (*Conn, error) {
	return connect(ctx, dataDir, cfg, log, false)
}

func connect(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger, unknownIsDamage bool) (*Conn, error) {
	if cfg.URL != "" {
		letGo, err := checkMovedOut(ctx, dataDir, cfg, log)
		if err != nil {
			return nil, err
		}
		c, err := dial(ctx, dataDir, cfg, log)
		if err != nil {
			return nil, err
		}
		c.LetGo = letGo
		return c, nil
	}
	return embed(ctx, dataDir, cfg, log, unknownIsDamage)
}

// checkMovedOut does what checkMoved does for a journal outside of the data directory.
func checkMovedOut(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (letGo []LetGo, err error) {
	lock, err := datadir.Lock(dataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return checkMoved(ctx, dataDir, cfg, log)
}

func embed(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger, unknownIsDamage bool) (*Conn, error) {
	if err := durable.MakeDir(dataDir); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := datadir.Lock(dataDir)
	if err != nil {
		return nil, err
	}
	c := &Conn{lock: lock, dataDir: dataDir}
	if c.LetGo, err = checkMoved(ctx, dataDir, cfg, log); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if c.marks, err = datadir.OpenWatermarks(dataDir, log); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	files := datadir.New(dataDir, layoutFor(cfg.StreamPrefix), c.marks)
	if unknownIsDamage {
		files.TakeUnknownForDamage()
	}
	server, mended, err := files.Start(ctx, log)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.embedded, c.Mended = server, mended
	if err := c.open(
		nats.InProcessServer(server), nats.Name("auditrelay"),
		// When the server is started anew: see [datadir.Server].
		nats.MaxReconnects(-1), nats.ReconnectWait(retryPause), nats.ReconnectBufSize(-1),
		quiet(log),
	); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// quiet keeps the client from printing by itself. What it has to say, such as
// that a reader which waits for its sink was sent a heartbeat too many, shows
// as a gap in what is read where it matters, and that is read again.
func quiet(log *slog.Logger) nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Debug("journal connection", "error", err) })
}

func dial(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (*Conn, error) {
	opts, err := dialOptions(ctx, cfg)
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), // a publish fails while disconnected; ours is retried
		// A server that is frozen, or behind a broken route, is left for another
		// within three intervals, so that an append's retries still reach that.
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("journal disconnected", "error", err) }),
		quiet(log),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("journal reconnected") }),
	)
	c := &Conn{}
	if c.marks, err = datadir.OpenWatermarks(filepath.Join(dataDir, externalDir, cfg.StreamPrefix), log); err != nil {
		return nil, err
	}
	err = streams.Await(ctx, log, "a connection", func(context.Context) error { return c.open(opts...) })
	if err != nil {
		return nil, fmt.Errorf("journal.url %s: %w", cfg.URL, err) // it holds no password
	}
	return c, nil
}

// dialOptions say how the external servers are reached.
func dialOptions(ctx context.Context, cfg config.Journal) ([]nats.Option, error) {
	opts := []nats.Option{nats.Name("auditrelay"), serverURL(cfg.URL)}
	if deadline, ok := ctx.Deadline(); ok {
		opts = append(opts, nats.Timeout(time.Until(deadline)))
	}
	if cfg.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.TLS != nil {
		tlsConfig, err := cfg.TLS.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		opts = append(opts, nats.Secure(tlsConfig))
	}
	return opts, nil
}

func serverURL(urls string) nats.Option {
	return func(o *nats.Options) error {
		o.Servers = strings.Split(urls, ",")
		return nil
	}
}

func (c *Conn) open(opts ...nats.Option) error {
	nc, err := nats.Connect("", opts...)
	if err != nil {
		return fmt.Errorf("connect to the journal's NATS: %w", err)
	}
	c.nc = nc
	c.JetStream, err = jetstream.New(nc, jetstream.WithPublishAsyncTimeout(attemptTimeout))
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return nil
}

// maxPayload is the greatest message that the server takes at present, in
// bytes, its headers included. An external one may be replaced by another that
// takes less.
func (c *Conn) maxPayload() int { return int(c.nc.MaxPayload()) }

// recordLimit is the most that a record may hold before compression, in bytes.
func (c *Conn) recordLimit() int {
	payload := c.maxPayload()
	return payload - min(payloadSlack, payload/4)
}

// readLimit bounds what is asked for at once, in bytes: some records, or one of
// the largest. Those may be from when the server took more than it does now.
func (c *Conn) readLimit() int {
	return max(c.maxPayload(), recordTarget+payloadSlack) + fetchBytes
}

// Err says why nothing can be kept at present: the server is not reached, or
// the embedded one's disk fails. It is nil while all is well.
func (c *Conn) Err() error {
	if err := c.epoch().Ended(); err != nil {
		return err
	}
	if !c.nc.IsConnected() {
		return errors.New("not connected")
	}
	return nil
}

// epoch is that of the server; an external one's does not end.
func (c *Conn) epoch() *datadir.Epoch {
	if c.embedded == nil {
		return &datadir.Epoch{}
	}
	_, epoch := c.embedded.Current()
	return epoch
}

// settle makes durable what the embedded server leaves out: see [datadir.Server.Settle].
func (c *Conn) settle(stream string) error {
	if c.embedded == nil {
		return nil
	}
	return c.embedded.Settle(stream)
}

// shrunk tells that messages of a stream were removed.
func (c *Conn) shrunk(stream string) {
	if c.embedded != nil {
		c.embedded.Shrunk(stream)
	}
}

// NoteEnd notes beside the embedded server's files that stream has reached seq.
// Records that are then missing from its end are named at the next start, and
// their positions are not given out again.
func (c *Conn) NoteEnd(stream string, seq uint64) {
	if c.embedded != nil { // of an external one nothing keeps positions from being given out again
		c.marks.RaiseEnd(stream, seq)
	}
}

// End is what NoteEnd noted, 0 where that is nothing.
func (c *Conn) End(stream string) uint64 { return c.marks.End(stream) }

// Close disconnects, and stops an embedded server.
func (c *Conn) Close() error {
	if c.nc != nil {
		c.nc.Close()
	}
	if c.embedded != nil {
		c.embedded.Close()
	}
	err := c.marks.Close()
	if c.lock != nil {
		err = errors.Join(err, c.lock.Close())
	}
	return err
}

// layoutFor says what the streams of a prefix hold.
func layoutFor(prefix string) datadir.Layout {
	names := namesFor(prefix)
	return datadir.Layout{
		Events: names.events, DeadLetters: names.dead, Quarantine: names.quarantine,
		Sinks: consumerPrefix, Count: record.Count, Check: record.Check, Later: record.CheckVersion, AdviceLater: adviceVersion,
	}
}

// OpenOffline opens the journal of a data directory on which no relay runs;
// prefix is the configuration's stream_prefix.
func OpenOffline(dataDir, prefix string) (*datadir.Offline, error) {
	return datadir.OpenOffline(dataDir, layoutFor(prefix))
}
