package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
)

// unseenMargin is how many positions after the newest one that a sink is known to have had are passed
// over where the log has lost it.
const unseenMargin = 1 << 16

// Unseen returns the positions after the end of the first log of events in a store on disk that some sink
// has had, or nil. It is for whoever only looks into the store.
func Unseen(ctx context.Context, s store.Store, cfg config.Journal) (*store.Gap, error) {
	j, err := look(ctx, s, cfg, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is missing
	}
	if err != nil {
		return nil, err
	}
	return j.unseen(ctx)
}

// PassUnseen has the log go on after the positions of [Unseen], as a start does.
func PassUnseen(ctx context.Context, s store.Store, cfg config.Journal, log *slog.Logger) error {
	j, err := look(ctx, s, cfg, 0)
	if err != nil {
		return err
	}
	j.log = log
	return j.passUnseen(ctx)
}

func (j *Journal) unseen(ctx context.Context) (*store.Gap, error) {
	values, err := j.table.List(ctx, j.keys.position)
	if err != nil {
		return nil, fmt.Errorf("list the positions of sinks: %w", err)
	}
	seen := j.inherited
	for _, v := range values {
		var p positionValue
		if json.Unmarshal(v.Data, &p) == nil && p.Version <= positionVersion && j.keys.position+p.Sink == v.Key && p.Log == j.id.String() {
			seen = max(seen, p.Position)
		}
	}
	if seen == j.inherited {
		return nil, nil //nolint:nilnil // nothing is missing
	}
	return &store.Gap{From: j.inherited + 1, To: seen, Why: store.Damaged}, nil
}

// passUnseen has a log on disk go on after every record that some sink has had. Where the log ends
// before, the end mark and the newest segment are both lost, or earlier copies: what a sink had is
// certainly lost, and what came after it perhaps.
//
// A crash between the two steps leaves the first gap, and positions that no sink had: those count as
// never given.
func (j *Journal) passUnseen(ctx context.Context) error {
	log, ok := j.events.(store.Taker)
	if !ok || j.set.opts.Shared { // a cluster knows itself that it lost its end
		return nil
	}
	gap, err := j.unseen(ctx)
	if err != nil || gap == nil {
		return err
	}
	j.log.Error("the log of events ends before what a sink has had: it goes on after the lost positions",
		"log", j.name, "end", j.inherited, "had", gap.To)
	err = log.Pass(ctx, *gap)
	last := gap.To + unseenMargin
	if err == nil {
		err = log.Pass(ctx, store.Gap{From: gap.To + 1, To: last, Why: store.Doubtful})
	}
	if errors.Is(err, store.ErrFull) { // no start is refused for want of room
		j.log.Warn("the lost positions are not passed over yet; the next start does it", "log", j.name, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("pass over lost records of the log %s: %w", j.name, err)
	}
	end := j.end.get()
	j.inherited, end.pos = last, last
	j.end.reach(end)
	return nil
}
