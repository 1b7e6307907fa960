package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/losses"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// Repairs are the results of [Repair].
type Repairs struct {
	Mended []datadir.Mending `json:"mended"`
	// SetAside are the positions now in the quarantine, without those from before.
	SetAside []datadir.Quarantined `json:"set_aside"`
	// Positions are the sinks with a position; wrong ones were set back.
	Positions []string `json:"positions"`
}

// RepairOptions are further steps of a [Repair].
type RepairOptions struct {
	// UnknownIsDamage takes blocks of an unknown form out, after a person decided so.
	UnknownIsDamage bool
	// Others, unless nil, repairs the streams of other rooms.
	Others func(context.Context, *streamserver.Conn) error
}

// Repair mends a data directory while no relay runs on it. It copies damaged bytes to
// the salvage folder and takes them out of the files, names unreadable records and
// positions without a record in the quarantine, and sets wrong positions of sinks back.
// It can be ended and begun again at any moment.
func Repair(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger, opts RepairOptions) (_ *Repairs, err error) {
	connect := streamserver.Connect
	if opts.UnknownIsDamage {
		connect = streamserver.ConnectTakingUnknownForDamage
	}
	conn, err := connect(ctx, dataDir, cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	before, err := losses.Quarantined(ctx, conn, cfg.StreamPrefix)
	if err != nil {
		return nil, err
	}
	j, err := Open(ctx, conn, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if err := j.Losses.NameUnreadable(ctx); err != nil {
		return nil, err
	}
	if opts.Others != nil {
		if err := opts.Others(ctx, conn); err != nil {
			return nil, err
		}
	}
	r := &Repairs{Mended: append([]datadir.Mending{}, conn.Mended...), Positions: []string{}}
	if r.Positions, err = j.checkPositions(ctx); err != nil {
		return nil, err
	}
	after, err := j.Losses.All(ctx)
	if err != nil {
		return nil, err
	}
	r.SetAside = append([]datadir.Quarantined{}, after[len(before):]...)
	return r, nil
}

// checkPositions sets the sinks' positions right, and returns their names.
func (j *Journal) checkPositions(ctx context.Context) ([]string, error) {
	list := j.stream.ListConsumers(ctx)
	names := []string{}
	for c := range list.Info() {
		if strings.HasPrefix(c.Name, consumerPrefix) {
			names = append(names, c.Name)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list the sinks' positions: %w", err)
	}
	for i, name := range names {
		consumer, err := j.stream.Consumer(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("open the position of %s: %w", name, err)
		}
		if err := j.correct(ctx, position{name, consumer}, 0, false); err != nil {
			return nil, err
		}
		names[i] = strings.TrimPrefix(name, consumerPrefix)
	}
	return names, nil
}
