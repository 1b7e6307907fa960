package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
)

// layoutKey is the table's key of the layout.
const layoutKey = "shards"

// layout says to which log the events of an environment go.
type layout struct {
	// Number counts the layouts. A record of a log is marked with the one it was appended under.
	Number uint64 `json:"number"`
	// Shards is how many logs events are appended to.
	Shards int `json:"shards"`
	// Next, while it is set, is how many it will be: pushes of the environments that move are refused
	// until all relays know that.
	Next int `json:"next,omitempty"`
	// Logs is how many logs were ever appended to.
	Logs int `json:"logs"`
	// Moves are the changes of the number, oldest first.
	Moves []move `json:"moves,omitempty"`

	rev      uint64 // of the value in the table
	doubtful bool   // the table lost values, and perhaps a later layout
}

// move is a change of the number of logs: no record that is marked with its number or a later one is
// given to a sink before the sink has had all that each log had at the move.
type move struct {
	Number uint64   `json:"number"`
	Ends   []uint64 `json:"ends"` // the newest position of each log
}

// loadLayout reads the layout. Without one, all events are in the first log.
func loadLayout(ctx context.Context, table store.Table) (*layout, error) {
	l := &layout{Shards: 1, Logs: 1}
	v, err := table.Get(ctx, layoutKey)
	if err == nil && v.Data != nil {
		err = json.Unmarshal(v.Data, l)
	}
	if err != nil {
		return nil, fmt.Errorf("read over how many logs the events are spread: %w", err)
	}
	l.rev, l.doubtful = v.Rev, v.Doubtful
	return l, nil
}

// replace puts the next layout in the place of this one, unless somebody else has done that.
func (l *layout) replace(ctx context.Context, table store.Table, next layout) error {
	next.Number = l.Number + 1
	next.Logs = max(l.Logs, next.Logs, next.Shards, next.Next)
	value, err := json.Marshal(next)
	if err == nil {
		_, err = table.Put(ctx, layoutKey, value, store.If{Key: layoutKey, Rev: l.rev})
	}
	if err != nil {
		return fmt.Errorf("change over how many logs the events are spread: %w", err)
	}
	return nil
}

// moves reports whether the events of a source are about to go to another log.
func (l *layout) moves(source string) bool {
	return l.Next > 0 && ShardOf(source, l.Shards) != ShardOf(source, l.Next)
}

// ShardOf is the number of the log that the events of a source go to. Of all logs it is the one with the largest
// hash of the source and its own number, so that a further log takes an equal share from each of
// the others, and nothing else moves. What it returns must never change.
func ShardOf(source string, shards int) (shard int) {
	of, largest := xxhash.Sum64String(source), uint64(0)
	for k := range shards {
		if h := mixed(of + uint64(k)*0x9e3779b97f4a7c15); h > largest {
			shard, largest = k, h
		}
	}
	return shard
}

// mixed is the finalizer of SplitMix64: every bit of x matters to every bit of it.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
