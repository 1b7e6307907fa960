package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/store"
)

// unseenMargin is how many positions after the newest one that a sink is known to have had are passed
// over where the log has lost it.
const unseenMargin = 1 << 16

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
	values, err := j.table.List(ctx, j.keys.position)
	if err != nil {
		return fmt.Errorf("list the positions of sinks: %w", err)
	}
	seen := store.Pos(0)
	for _, v := range values {
		var p positionValue
		if json.Unmarshal(v.Data, &p) == nil && p.Version <= positionVersion && j.keys.position+p.Sink == v.Key && p.Log == j.id.String() {
			seen = max(seen, p.Position)
		}
	}
	if seen <= j.inherited {
		return nil
	}
	j.log.Error("the log of events ends before what a sink has had: it goes on after the lost positions",
		"log", j.name, "end", j.inherited, "had", seen)
	err = log.Pass(ctx, store.Gap{From: j.inherited + 1, To: seen, Why: store.Damaged})
	if err == nil {
		err = log.Pass(ctx, store.Gap{From: seen + 1, To: seen + unseenMargin, Why: store.Doubtful})
	}
	if errors.Is(err, store.ErrFull) { // no start is refused for want of room
		j.log.Warn("the lost positions are not passed over yet; the next start does it", "log", j.name, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("pass over lost records of the log %s: %w", j.name, err)
	}
	end := j.end.get()
	j.inherited, end.pos = seen+unseenMargin, seen+unseenMargin
	j.end.reach(end)
	return nil
}
