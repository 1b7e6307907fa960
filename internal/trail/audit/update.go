package audit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Log is a [Trail], as far as [Update] needs one.
type Log interface {
	// Last returns the newest sound entry of a resource, and whether there is one.
	Last(ctx context.Context, project, environment, subject string) (Entry, bool, error)
	// AppendIf adds e after the resource's entry with the index newest, -1 for none.
	AppendIf(ctx context.Context, e Entry, newest int64) (int64, error)
	// Get returns one entry; ErrMissing says that there is no readable one.
	Get(ctx context.Context, index int64) (Recorded, error)
}

// Backwards calls visit with the entries of a resource, the newest first, until visit
// returns false. It ends at an entry that is lost or damaged, and at one that names no
// entry before it.
func Backwards(ctx context.Context, log Log, project, environment, subject string, visit func(Entry) bool) error {
	e, found, err := log.Last(ctx, project, environment, subject)
	for found && err == nil && visit(e) && e.PreviousIndex != nil && *e.PreviousIndex < e.Index {
		var before Recorded
		before, err = log.Get(ctx, *e.PreviousIndex)
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged) {
			return nil
		}
		found = !before.Unsound && before.Project == project && before.Environment == environment && before.Subject == subject
		e = before.Entry
	}
	if err != nil {
		return fmt.Errorf("read the entries of %s: %w", subject, err)
	}
	return nil
}

// updateAttempts bounds how often others may be quicker.
const updateAttempts = 6

// Update compares a resource with its newest sound entry, and appends the difference.
// next makes the entry due after last, nil for none; found is false where there is no
// last. The entry gets the names of its resource, and the present time if it has none.
// Update returns the appended entry, or nil.
//
// The entry is appended right after next's last one of the resource, or not at all. So a
// crash before the append leaves the change to the next call, and after it nothing is left
// to do. Where another relay was quicker, or an entry whose acknowledgement was lost had
// arrived, next is called again.
func Update(ctx context.Context, log Log, project, environment, subject string, next func(last Entry, found bool) (*Entry, error)) (*Entry, error) {
	for attempt := 1; ; attempt++ {
		last, found, err := log.Last(ctx, project, environment, subject)
		if err != nil {
			return nil, fmt.Errorf("read the trail: %w", err)
		}
		e, err := next(last, found)
		if err != nil || e == nil {
			return nil, err
		}
		e.Project, e.Environment, e.Subject = project, environment, subject
		if e.Time.IsZero() {
			e.Time = time.Now()
		}
		newest := int64(-1)
		if found {
			newest = last.Index
		}
		e.Index, err = log.AppendIf(ctx, *e, newest)
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, ErrConflict) || attempt == updateAttempts {
			return nil, err
		}
	}
}
