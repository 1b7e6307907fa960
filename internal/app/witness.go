package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
)

// WitnessOptions are a witness's needs.
type WitnessOptions struct {
	Logger  *slog.Logger
	Version string
	// DataDir is the folder of the state; it exists. One process owns it at a time.
	DataDir string
	// KeyFile holds the signing key.
	KeyFile string
	// Logs are the verifier keys of the logs in trust, the oldest generation first.
	Logs []string
	// Listen is HOST:PORT for the logs, with TLS or nil.
	Listen string
	TLS    *config.TLSServer
	// Admin is the private listener.
	Admin config.Admin
	// Started, if set, is called once with the addresses.
	Started func(listen, admin string)
}

// WitnessState is the file of a witness's state in its folder.
func WitnessState(dataDir string) string { return filepath.Join(dataDir, "witness-state.json") }

const (
	witnessShutdown    = 10 * time.Second
	witnessConnections = 1024
	witnessPerAddress  = 64
)

// RunWitness runs a witness until ctx ends.
func RunWitness(ctx context.Context, o WitnessOptions) error {
	r := newProcess(&config.Config{DataDir: o.DataDir, Admin: o.Admin, ShutdownTimeout: witnessShutdown}, Options{Logger: o.Logger, Version: o.Version})
	var listen, public string
	start := func(ctx context.Context) (err error) {
		listen, public, err = r.startWitness(ctx, o)
		return err
	}
	return r.run(ctx, start, func() {
		r.log.Info("witness is running", "version", o.Version, "listen", listen, "admin", r.addresses.Admin, "public_key", public, "logs", len(o.Logs))
		if o.Started != nil {
			o.Started(listen, r.addresses.Admin)
		}
	})
}

func (r *process) startWitness(ctx context.Context, o WitnessOptions) (listen, public string, err error) {
	lock, err := durable.Lock(o.DataDir)
	if err != nil {
		return "", "", err
	}
	r.stack.push("lock", func(context.Context) error { return lock.Close() })
	key, err := witness.LoadKey(o.KeyFile)
	if err != nil {
		return "", "", err
	}
	w, err := witness.Open(WitnessState(o.DataDir), key, o.Logs)
	if err != nil {
		return "", "", err
	}
	if err := r.startAdmin(ctx); err != nil {
		return "", "", err
	}
	handler := witness.NewHandler(w, r.log, r.reg)
	r.admin.AddCheck(admin.Check{Name: "state", Probe: func(context.Context) (string, error) {
		return fmt.Sprintf("%d logs", len(w.Logs())), handler.Err()
	}})
	r.admin.AddStatus("witness", func(context.Context) (any, error) {
		return map[string]any{"public_key": key.Public(), "logs": w.Logs()}, nil
	})
	server := serverOf(handler, 10*time.Second)
	server.MaxHeaderBytes = 16 << 10
	listen, err = r.serve(ctx, &r.stack, o.Listen, o.TLS.ServerConfig, server, connlimit.Options{Name: "witness", Total: witnessConnections, PerAddress: witnessPerAddress})
	if err != nil {
		return "", "", err
	}
	r.admin.Running()
	return listen, key.Public(), nil
}

// RecoverWitness makes the lost state of a stopped witness again: see witness.Recover.
func RecoverWitness(dataDir string, key witness.Key, checkpoints []string) (logs []witness.LogState, err error) {
	lock, err := durable.Lock(dataDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	file := WitnessState(dataDir)
	if err := witness.Recover(file, key, checkpoints); err != nil {
		return nil, err
	}
	w, err := witness.Open(file, key, nil)
	if err != nil {
		return nil, err
	}
	return w.Logs(), nil
}
