package journal

import (
	"context"
	"errors"
	"log/slog"

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
	if r.Positions, err = j.Positions.Correct(ctx); err != nil {
		return nil, err
	}
	after, err := j.Losses.All(ctx)
	if err != nil {
		return nil, err
	}
	r.SetAside = append([]datadir.Quarantined{}, after[len(before):]...)
	return r, nil
}
