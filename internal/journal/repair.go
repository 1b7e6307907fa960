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
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// Repairs is what [Repair] did.
type Repairs struct {
	Mended []datadir.Mending `json:"mended"`
	// SetAside are the positions now in the quarantine, without those from before.
	SetAside []datadir.Quarantined `json:"set_aside"`
	// Positions are the sinks with a position; wrong ones were set back.
	Positions []string `json:"positions"`
}

// RepairOptions are what a [Repair] may do beside the obvious.
type RepairOptions struct {
	// UnknownIsDamage has blocks of an unknown form taken out, as a person has decided.
	UnknownIsDamage bool
	// Others, unless nil, repairs what other rooms keep beside the journal.
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
	before, _, err := readQuarantine(ctx, conn.JetStream, streamserver.Layout(cfg.StreamPrefix).Quarantine)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	j, err := Open(ctx, conn, cfg, Options{Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return nil, err
	}
	defer j.Close()
	if err := j.setAsideUnreadable(ctx); err != nil {
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
	after, err := j.Quarantine(ctx)
	if err != nil {
		return nil, err
	}
	r.SetAside = append([]datadir.Quarantined{}, after[len(before):]...)
	return r, nil
}

// setAsideUnreadable reads every record. It copies each undecodable one to the salvage
// folder, and names it in the quarantine.
func (j *Journal) setAsideUnreadable(ctx context.Context) error {
	for _, name := range []string{j.names.events, streamserver.Layout(j.cfg.StreamPrefix).DeadLetters} {
		stream, err := j.conn.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // no relay has run on this directory yet
		}
		if err != nil {
			return fmt.Errorf("open stream %s: %w", name, err)
		}
		state := stream.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
			if name == j.names.events {
				if err := j.asks(ctx, seq); err != nil {
					return err
				}
			}
			msg, err := stream.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // the gaps were named when the journal was opened
			}
			if err != nil {
				return fmt.Errorf("read position %d of %s: %w", seq, name, err)
			}
			if err := j.setAsideIfCorrupt(ctx, name, msg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *Journal) setAsideIfCorrupt(ctx context.Context, stream string, msg *jetstream.RawStreamMsg) error {
	_, corrupt := record.Check(msg.Data)
	if !errors.Is(corrupt, record.ErrCorrupt) {
		return corrupt // nil, or a later version's record: it is sound
	}
	kept, err := datadir.Keep(j.conn.DataDir, stream, msg.Sequence, msg.Data)
	if err != nil {
		return err
	}
	q := datadir.Quarantined{Stream: stream, From: msg.Sequence, To: msg.Sequence, Reason: corrupt.Error(), Kept: kept}
	return j.setAside(ctx, q, msg.Data)
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
