package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/cluster"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// Folders in the data directory.
const (
	// StoreDir is that of the store.
	StoreDir = "store"
	// NotesDir is for notes on a store that is kept on an external cluster.
	NotesDir = "external"
	// SalvageDir takes bytes that could not be read as what they should be.
	SalvageDir = "salvage"
)

// startStore opens the store that every durable room keeps its logs and values in.
func (r *process) startStore(ctx context.Context) (err error) {
	if err := refuseEarlier(r.cfg().DataDir); err != nil {
		return err
	}
	guard, err := durable.Lock(r.cfg().DataDir)
	if err != nil {
		return err
	}
	r.stack.push("lock", func(context.Context) error { return guard.Close() })
	if err := r.settleHome(ctx); err != nil {
		return err
	}
	if err := r.openStore(ctx); err != nil {
		return err
	}
	if err := r.noteHome(); err != nil {
		return err
	}
	// On servers of others there is no fuse: the relay cannot bring back what they lost.
	r.quarantine, err = journal.OpenQuarantine(ctx, r.store, journal.QuarantineOptions{
		Logger: r.log, Registerer: r.reg, Lost: r.makeRecent(), Ready: r.calm, Fuse: r.cfg().Journal.URL == "",
	})
	if err != nil {
		return err
	}
	r.stack.push("quarantine", func(context.Context) error { return r.quarantine.Close() })
	return nil
}

// openStore opens the store of the process. It may wait for a cluster, and pushes are refused
// meanwhile.
func (r *process) openStore(ctx context.Context) (err error) {
	if r.inCluster() {
		started := background(r.refuse)
		defer func() { err = errors.Join(err, started(context.WithoutCancel(ctx))) }()
	}
	r.store, err = openStore(ctx, r.cfg(), StoreOptions{Version: r.version, Logger: r.log, Registerer: r.reg, Failed: r.fail}, r.homes.Logs)
	if err != nil {
		return err
	}
	r.stack.push("store", func(context.Context) error { return r.store.Close() })
	r.showCluster(nil)
	return move.Check(ctx, r.store)
}

// StoreOptions are what a process has to say about a store.
type StoreOptions struct {
	Version string
	Logger  *slog.Logger
	// Registerer takes the metrics of a cluster's store.
	Registerer prometheus.Registerer
	// Failed is told when the store of a cluster cannot be used any more; nil for nobody.
	Failed func(error)
}

// OpenStore opens the store of a configuration for a command, which keeps the data directory
// locked until it closes the store: no relay may run.
func OpenStore(ctx context.Context, cfg *config.Config, o StoreOptions) (store.Store, error) {
	guard, err := durable.Lock(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := openStore(ctx, cfg, o, readHomes(cfg.DataDir, o.Logger).Logs)
	if err == nil {
		if err = move.Check(ctx, s); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, guard.Close())
	}
	return &lockedStore{s, guard}, nil
}

// lockedStore is a store with the lock on the data directory.
type lockedStore struct {
	store.Store
	guard *os.File
}

func (s *lockedStore) Close() error { return errors.Join(s.Store.Close(), s.guard.Close()) }

// openStore opens the store of a configuration: on the cluster of journal.url, or on the disk.
// The caller holds the lock on the data directory. A store on the disk is known to have had
// some logs.
func openStore(ctx context.Context, cfg *config.Config, o StoreOptions, had []string) (store.Store, error) {
	if cfg.Journal.URL == "" {
		return disk.Open(diskOf(cfg, o, had))
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return cluster.Open(ctx, cluster.Config{
		Journal: cfg.Journal, Dir: filepath.Join(cfg.DataDir, NotesDir), Salvage: filepath.Join(cfg.DataDir, SalvageDir),
		Version: o.Version, Logger: o.Logger, Registerer: o.Registerer, Failed: o.Failed,
	})
}

// ViewStore opens the store in the data directory of a running or a stopped relay, for
// reading only.
func ViewStore(cfg *config.Config) (store.Store, error) {
	log := slog.New(slog.DiscardHandler)
	return disk.View(diskOf(cfg, StoreOptions{Logger: log}, readHomes(cfg.DataDir, log).Logs))
}

func diskOf(cfg *config.Config, o StoreOptions, had []string) disk.Config {
	return disk.Config{
		Dir: filepath.Join(cfg.DataDir, StoreDir), Salvage: filepath.Join(cfg.DataDir, SalvageDir), Writer: o.Version,
		Had: had, Logger: o.Logger,
	}
}

// storeErr says why nothing can be stored at present, or is nil. A store on disk says so at
// the next append.
func (r *process) storeErr() error {
	if s, ok := r.store.(interface{ Err() error }); ok {
		return s.Err()
	}
	return nil
}

// refuseEarlier returns an error if the data directory has events of an auditrelay that kept
// them in an embedded nats-server: this one cannot read them, and would never deliver them.
func refuseEarlier(dataDir string) error {
	folder := filepath.Join(dataDir, "jetstream")
	found, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the events of an earlier version: %w", err)
	}
	return fmt.Errorf("data_dir %s holds the events of an earlier version of auditrelay, in %s, which this version cannot read: set an empty data_dir; if some of those events are not delivered yet, run the earlier version until its 'auditrelay sinks list' shows nothing pending", dataDir, folder)
}

// littleRoom on the disk is no room for all that is not an event: the trail, and how far sinks are. Pushes
// are taken nevertheless, for as long as the room that the journal has reserved lasts.
const littleRoom = 16 << 20

// freeOn is the room that a folder's disk has for the relay, whoever fills it. It is none while the
// disk takes nothing from the relay, as by a quota.
func freeOn(dir string, in store.Store) (config.Size, error) {
	if s, ok := in.(interface{ Full() error }); ok && s.Full() != nil {
		return 0, nil //nolint:nilerr // that there is no room is the answer
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, err
	}
	return config.Size(disk.Bavail) * config.Size(disk.Bsize), nil
}

// diskFree is the room of the data directory's disk; NaN where it cannot be asked.
func (r *process) diskFree() prometheus.Collector {
	return gauge("auditrelay_disk_free_bytes", "Free room on the data directory's disk.", func() float64 {
		free, err := freeOn(r.cfg().DataDir, r.store)
		if err != nil {
			return math.NaN()
		}
		return float64(free)
	})
}

func (r *process) diskRemark(context.Context) (string, error) {
	dir := r.cfg().DataDir
	free, err := freeOn(dir, r.store)
	switch {
	case err != nil:
		return fmt.Sprintf("warning: the disk of %s cannot be asked for its room: %v", dir, err), nil
	case free < littleRoom:
		return fmt.Sprintf("warning: the disk of %s has %v left, so that the audit trail and the positions of sinks may not be written; make room", dir, free), nil
	}
	return fmt.Sprintf("%v are free", free), nil
}

// makeDataDir makes the data directory where there is none, and says what keeps this user from it.
func makeDataDir(dir string) error {
	err := durable.MakeDir(dir)
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS)
	}
	advice := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		advice = fmt.Sprintf("; run the relay as the user whom the folder belongs to, or give the folder to this user (uid %d)", os.Geteuid())
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTDIR):
		advice = "; it, or what it is in, is a file: set another data_dir"
	}
	return fmt.Errorf("data_dir %s: %w%s", dir, err, advice)
}
