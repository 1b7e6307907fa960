package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/natsguard"
)

const (
	// pingInterval is the time between two pings. The client leaves a frozen server, or one
	// that can no longer be reached, after two of them were not answered: an append's
	// retries still reach another server.
	pingInterval = 2 * time.Second
	// reconnectWait is the pause between two rounds of all servers.
	reconnectWait = 500 * time.Millisecond
)

// dial connects, and waits for servers that are starting.
func dial(ctx context.Context, cfg config.Journal, log *slog.Logger) (jetstream.JetStream, error) {
	opts, err := dialOptions(ctx, cfg)
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1), // a publish without a connection fails; its caller tries again
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("journal disconnected", "error", err) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { reconnected(nc, log) }),
		quiet(log),
	)
	var js jetstream.JetStream
	err = await(ctx, log, "a connection", func(context.Context) (err error) {
		js, err = connect(cfg.URL, opts...)
		return err
	})
	return js, err
}

// reconnected tells of a server that a start would refuse: the cluster may be in the middle of a
// change of versions, and the relay's other servers may be the new ones.
func reconnected(nc *nats.Conn, log *slog.Logger) {
	log.Info("journal reconnected")
	if version := nc.ConnectedServerVersion(); tooOld(version) {
		log.Error("the journal's server is too old, and a restart of the relay would be refused",
			"server", nc.ConnectedServerName(), "version", version, "oldest", oldestServer[1:])
	}
}

// connect connects to one of the servers of a URL, which holds no password.
func connect(url string, opts ...nats.Option) (jetstream.JetStream, error) {
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("journal.url %s: connect to the journal's NATS: %w", url, err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(attemptTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("journal.url %s: use JetStream: %w", url, err)
	}
	return js, nil
}

// dialOptions say how the servers are reached.
func dialOptions(ctx context.Context, cfg config.Journal) ([]nats.Option, error) {
	timeout := nats.DefaultTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	opts := []nats.Option{nats.Name("auditrelay"), nats.Timeout(timeout), nats.SetCustomDialer(&natsguard.Dialer{Dialer: net.Dialer{Timeout: timeout}})}
	if cfg.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.TLS != nil {
		tlsConfig, err := cfg.TLS.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		opts = append(opts, nats.Secure(tlsConfig))
		authorities, err := cfg.TLS.Authorities()
		if err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if authorities != nil { // as they are at each connection
			opts = append(opts, func(o *nats.Options) error {
				o.RootCAsCB = func() (*x509.CertPool, error) { return authorities(), nil }
				return nil
			})
		}
	}
	return opts, nil
}

// quiet keeps the client from printing its complaints itself.
func quiet(log *slog.Logger) nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Debug("journal connection", "error", err) })
}
