package streamserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/durable"
	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	// pingInterval is the time between two pings to an external server.
	pingInterval = 2 * time.Second
	// reconnectWait is the pause between two rounds of all external servers;
	// embeddedWait is the same for the embedded one.
	reconnectWait = 500 * time.Millisecond
	embeddedWait  = 200 * time.Millisecond
	// externalDir is the folder in the data directory for the watermarks of external
	// streams, by their prefix.
	externalDir = "external"
)

// Connect starts the embedded server on dataDir, or dials cfg.URL if set, and waits for
// servers on their way up. It refuses to leave an undrained journal behind (ErrMoved), to
// use servers with a broken promise, and to read records of a later version
// (record.ErrVersion). cfg must have its defaults. ctx bounds the connecting only.
func Connect(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (*Conn, error) {
	return connect(ctx, dataDir, cfg, log, false)
}

// ConnectTakingUnknownForDamage is Connect, after a person decided so: it moves embedded
// blocks of an unknown form to the salvage folder.
func ConnectTakingUnknownForDamage(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (*Conn, error) {
	return connect(ctx, dataDir, cfg, log, true)
}

func connect(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger, unknownIsDamage bool) (c *Conn, err error) {
	if cfg.URL != "" {
		c, err = external(ctx, dataDir, cfg, log)
	} else {
		c, err = embed(ctx, dataDir, cfg, log, unknownIsDamage)
	}
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx, cfg, log); err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal: %w", err), c.Close())
	}
	return c, nil
}

// check refuses broken promises and records of a later version.
func (c *Conn) check(ctx context.Context, cfg config.Journal, log *slog.Logger) error {
	if !c.Embedded() {
		err := streams.Await(ctx, log, "what the journal's servers promise", func(ctx context.Context) error {
			return c.checkPromises(ctx, cfg, log)
		})
		if err != nil {
			return err
		}
	}
	return streams.Await(ctx, log, "the journal's version", func(ctx context.Context) error {
		return c.checkVersion(ctx, Layout(cfg.StreamPrefix).Events)
	})
}

func external(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) (*Conn, error) {
	return dial(ctx, dataDir, cfg, log)
}

func embed(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger, unknownIsDamage bool) (*Conn, error) {
	if err := durable.MakeDir(dataDir); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := durable.Lock(dataDir)
	if err != nil {
		return nil, err
	}
	c := &Conn{lock: lock, DataDir: dataDir}
	if c.Watermarks, err = datadir.OpenWatermarks(dataDir, log); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	files := datadir.New(dataDir, Layout(cfg.StreamPrefix), c.Watermarks)
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
		// For a new server after a write error: see [datadir.Server].
		nats.MaxReconnects(-1), nats.ReconnectWait(embeddedWait), nats.ReconnectBufSize(-1),
		quiet(log),
	); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// quiet keeps the client from printing by itself. Its complaints, such as an unexpected
// heartbeat to a reader behind a slow sink, show as a gap in the records; the reader
// reads those again.
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
		nats.ReconnectBufSize(-1), // a publish without a connection fails; its caller retries it
		// The client leaves a frozen server, or one behind a broken route, within three
		// intervals: an append's retries still reach another.
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("journal disconnected", "error", err) }),
		quiet(log),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("journal reconnected") }),
	)
	c := &Conn{}
	if c.Watermarks, err = datadir.OpenWatermarks(filepath.Join(dataDir, externalDir, cfg.StreamPrefix), log); err != nil {
		return nil, err
	}
	err = streams.Await(ctx, log, "a connection", func(context.Context) error { return c.open(opts...) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal.url %s: %w", cfg.URL, err), c.Close()) // the URL holds no password
	}
	return c, nil
}

// dialOptions say how to reach the external servers.
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
	if c.JetStream, err = jetstream.New(nc, jetstream.WithPublishAsyncTimeout(PublishTimeout)); err != nil {
		nc.Close()
		return fmt.Errorf("use JetStream: %w", err)
	}
	return nil
}
