package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Moved is a move of the journal that is finished.
type Moved struct {
	From Home      `json:"from"`
	To   Home      `json:"to"`
	Time time.Time `json:"time"`
	// Person ran the command.
	Person audit.Person `json:"person,omitzero"`
}

// MoveOptions are of a move.
type MoveOptions struct {
	Version  string
	Logger   *slog.Logger
	Person   audit.Person
	Progress func(done, total uint64)
}

// ErrTakenBack says that an unfinished move was ended, and that the journal stays where it is.
var ErrTakenBack = errors.New("the move is taken back")

// errNothingToMove refuses a move to the place where the journal is.
var errNothingToMove = errors.New("the journal is there already, and no move from there was begun")

// MoveJournal moves the journal of a stopped relay to another home, or goes on with the same
// move. A move to where the journal is takes an unfinished one back.
func MoveJournal(ctx context.Context, cfg *config.Config, to Home, o MoveOptions) (done Moved, err error) {
	lock, err := durable.Lock(cfg.DataDir)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	h, err := usedHome(cfg, o.Logger)
	if err != nil {
		return done, err
	}
	done = Moved{From: *h.Used, To: to, Person: o.Person}
	from, err := openPlace(ctx, configAt(cfg, done.From), o, h.Logs)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	switch {
	case done.From.isSame(to):
		err := takeBack(ctx, from)
		if m := h.Moved; errors.Is(err, errNothingToMove) && m != nil && m.To.isSame(to) {
			return *m, nil // a kill came after the note
		}
		return done, err
	case done.From.URL != "" && to.URL != "":
		return done, fmt.Errorf("the journal is on a cluster, %s: move it to the disk first, with --to disk, and from there to the other cluster", done.From)
	}
	if done.From.URL != "" {
		if err := journal.InOneLog(ctx, from, cfg.Journal); err != nil {
			return done, err
		}
	}
	if to.URL != "" { // what this relay remembers of an earlier journal there says nothing about the new one
		if err := os.RemoveAll(filepath.Join(cfg.DataDir, NotesDir, to.Prefix)); err != nil {
			return done, err
		}
	}
	at := configAt(cfg, to)
	at.SetDefaults() // of a cluster that the configuration does not name
	target, err := openPlace(ctx, at, o, nil)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if err := moveBetween(ctx, cfg, done.From.URL == "", from, target, o); err != nil {
		return done, err
	}
	// A crash before the note leaves a start to refuse the new place; the same command, run
	// again, finds everything done and writes it.
	done.Time = time.Now().UTC()
	h.Used, h.Moved, h.Logs = &to, &done, nil
	return done, h.write(cfg.DataDir)
}

func usedHome(cfg *config.Config, log *slog.Logger) (h homes, err error) {
	if h = readHomes(cfg.DataDir, log); h.Used == nil {
		err = fmt.Errorf("no relay has kept a journal with the data directory %s yet", cfg.DataDir)
	}
	return h, err
}

func takeBack(ctx context.Context, from move.Place) error {
	other, begun, err := move.TakeBack(ctx, from)
	switch {
	case err != nil:
		return err
	case !begun:
		return errNothingToMove
	}
	return fmt.Errorf("%w: the journal stays in %s; what was copied to %s is still there", ErrTakenBack, from.Name, other)
}

func moveBetween(ctx context.Context, cfg *config.Config, onDisk bool, from, to move.Place, o MoveOptions) (err error) {
	names, err := journal.OpenQuarantine(ctx, from, journal.QuarantineOptions{
		Logger: o.Logger, Registerer: prometheus.NewRegistry(), Fuse: true,
		Ready: make(chan struct{}), // nothing is read twice
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	return move.Run(ctx, move.Options{From: from, To: to, Names: names, Fused: onDisk, Logger: o.Logger, Progress: o.Progress, Keep: KeepOf(cfg), Alone: func(ctx context.Context) error {
		if onDisk {
			return nil // the lock on the data directory says so
		}
		return refuseOthers(ctx, from)
	}})
}

// KeepOf says how logs are kept: the events within their budget.
func KeepOf(cfg *config.Config) func(string) store.Options {
	return func(name string) store.Options {
		if journal.IsEvents(name) {
			return store.Options{MaxBytes: int64(cfg.Journal.MaxBytes), Allocate: true}
		}
		return store.Options{}
	}
}

// refuseOthers waits until a relay that was frozen before the mark of the move, and that wakes up
// now, can no longer take a push or do a job.
func refuseOthers(ctx context.Context, from move.Place) error {
	names, err := lease.Alone(ctx, from.Table(), journal.StaleAfter)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("some relays run on %s: %s; stop them first", from.Name, strings.Join(names, ", "))
	}
	return err
}

// PlanMove says what a move would copy. It changes nothing, and the relay may run if its journal
// is on the disk.
func PlanMove(ctx context.Context, cfg *config.Config, o MoveOptions) (p move.Plan, err error) {
	h, err := usedHome(cfg, o.Logger)
	if err != nil {
		return p, err
	}
	if h.Used.URL == "" {
		s, err := ViewStore(cfg)
		if err != nil {
			return p, err
		}
		return move.Look(ctx, move.Place{Store: s})
	}
	lock, err := durable.Lock(cfg.DataDir)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	from, err := openPlace(ctx, configAt(cfg, *h.Used), o, nil)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	return move.Look(ctx, from)
}

// openPlace opens the store of a configuration. The data directory is locked.
func openPlace(ctx context.Context, cfg *config.Config, o MoveOptions, had []string) (move.Place, error) {
	home := homeOf(cfg.Journal)
	s, err := openStore(ctx, cfg, StoreOptions{Version: o.Version, Logger: o.Logger}, had)
	if err != nil {
		return move.Place{}, fmt.Errorf("open %s: %w", home, err)
	}
	name := home.String()
	if home.URL == "" {
		host, _ := os.Hostname() // without it, the name is the folder only
		name = fmt.Sprintf("the data directory %s on %s", cfg.DataDir, host)
	}
	return move.Place{Store: s, Name: name}, nil
}
