package move

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/store"
)

// readBack reads everything in the new place, and refuses to leave the old one if some record of
// it is missing: it was lost there meanwhile, or some relay has gone on in the old place.
func (m *mover) readBack(ctx context.Context, logs []string) error {
	for _, name := range logs {
		from, was, err := open(ctx, m.From, name, m.Keep(name))
		if err != nil {
			return err
		}
		to, is, err := open(ctx, m.To, name, m.Keep(name))
		if err != nil {
			return err
		}
		if was.End != is.End {
			return refuse("the log %s of %s has grown up to %d since it was copied up to %d: stop whatever relay uses it, and run the move again", name, m.From.Name, was.End, is.End)
		}
		for item, err := range to.Read(ctx, was.First, false) {
			// What was trimmed there before it became the old place, every sink has had; a disk, which
			// drops whole segments, may still have it.
			if err == nil && item.Gap != nil && item.Gap.Why != store.Trimmed {
				err = m.confirm(ctx, name, from, *item.Gap)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// confirm refuses a gap in the new place where the old one has a record.
func (m *mover) confirm(ctx context.Context, name string, from store.Log, gap store.Gap) error {
	for item, err := range from.Read(ctx, gap.From, false) {
		switch {
		case err != nil:
			return err
		case item.Gap != nil && item.Gap.To < gap.To:
			continue
		case item.Gap != nil || item.Record.Pos > gap.To:
			return nil
		}
		return refuse("%s has lost position %d of the log %s since it was copied: empty that place, and begin again", m.To.Name, item.Record.Pos, name)
	}
	return nil
}
