package datadir

import (
	"fmt"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

// later looks for records of a later version among a stream's messages.
type later struct {
	layout *Layout
	since  uint64 // records before this one were trimmed
	first  error  // of the first such record
	count  uint64 // such records
}

func (l *later) look(f *blockfile.Frame) {
	err := l.layout.Later(f.Data)
	if err == nil || f.Seq < l.since {
		return
	}
	l.count++
	if l.first == nil {
		l.first = fmt.Errorf("position %d: %w", f.Seq, err)
	}
}

// err returns an error if there are any.
func (l *later) err() error {
	if l.first == nil {
		return nil
	}
	return fmt.Errorf("%d records cannot be read by this version, the first at %w; %s", l.count, l.first, l.layout.AdviceLater)
}
