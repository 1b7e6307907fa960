package journal

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/relay"
)

// A sink has two values in the table. The durable one registers it: from then on nothing is
// trimmed that it has not acknowledged. The lazy one is its position; without it the sink
// has acknowledged nothing.
type keys struct {
	sink, position string // followed by the sink's name
	trim           string // of the newest announced trim
}

// keysOf are the keys of one log. Which of them are lazy is known by how they begin.
func keysOf(shard int) keys {
	at := ""
	if shard > 0 {
		at = "=" + strconv.Itoa(shard)
	}
	return keys{sink: "sink" + at + "/", position: "position" + at + "/", trim: "trim" + at}
}

// positionVersion is the version of [positionValue].
const positionVersion = 1

// positionValue says how far a sink has come. It names everything that it depends on, so
// that a value that came to stand in a wrong place is not believed.
type positionValue struct {
	Version int    `json:"version"`
	Sink    string `json:"sink"`
	// Log is the ID of the log of events.
	Log string `json:"log_id"`
	// Position is the newest acknowledged record, and Sum its checksum; 0 for a position
	// without a record.
	Position store.Pos `json:"position"`
	Sum      uint64    `json:"checksum,omitempty"`
	// Events is how many events the log ever had up to it.
	Events uint64 `json:"events"`
	// At is when that record was committed.
	At time.Time `json:"committed,omitzero"`
	// Epoch is the number of the turn in which it was written; 0 where no other relay has the store.
	// Began is the position at the begin of that turn.
	Epoch uint64    `json:"epoch"`
	Began store.Pos `json:"began,omitempty"`
}

// ErrNoPosition means that the journal keeps nothing for the sink.
var ErrNoPosition = errors.New("the journal keeps no position of this sink")

// errUncertain means that nothing can be trimmed, since some sink's position is not known for
// certain.
var errUncertain = errors.New("not every sink's position is known for certain")

// register makes the journal keep everything that a sink has not acknowledged. A crash
// right after it leaves a sink without a position, for which everything is kept until it is
// opened or retired.
func (j *Journal) register(ctx context.Context, sink string) error {
	known, err := j.table.Get(ctx, j.keys.sink+sink)
	if err == nil && known.Data == nil {
		_, err = j.table.Put(ctx, j.keys.sink+sink, []byte("{}"), store.If{})
	}
	if errors.Is(err, store.ErrFull) { // this process knows the sink, and its position will tell the next one
		j.log.Warn("a sink cannot be registered with the journal for want of room", "sink", sink, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("register sink %s with the journal: %w", sink, err)
	}
	return nil
}

// registered returns the sinks for which something is kept, sorted. One of its two values
// is enough. The configured ones are registered even if the store lost both.
func (j *Journal) registered(ctx context.Context) (sinks []string, err error) {
	sinks = slices.Clone(j.set.served.Load().sinks)
	for _, prefix := range []string{j.keys.sink, j.keys.position} {
		values, err := j.table.List(ctx, prefix)
		if err != nil {
			return nil, fmt.Errorf("list the sinks of the journal: %w", err)
		}
		for _, v := range values {
			sinks = append(sinks, strings.TrimPrefix(v.Key, prefix))
		}
	}
	slices.Sort(sinks)
	return slices.Compact(sinks), nil
}

// keep writes the sink's position. After a power cut it may be an older one. Once another relay
// has the sink's turn, the store refuses it.
func (s *Source) keep(ctx context.Context, m mark) error {
	value, err := json.Marshal(positionValue{
		Version: positionVersion, Sink: s.sink, Log: s.j.id.String(), Position: m.pos, Sum: m.sum, Events: m.events, At: m.at.UTC(),
		Epoch: s.turn.Number(), Began: s.began,
	})
	if err == nil {
		err = s.j.table.PutLazy(ctx, s.j.keys.position+s.sink, value, s.turn.Guard())
	}
	if err != nil {
		s.j.metrics.notKept.Inc()
		return fmt.Errorf("keep the position of sink %s: %w", s.sink, err)
	}
	return nil
}

// position reads how far a sink has come. Where the value cannot be believed, why says so,
// and the place is not to be used. The log may have grown since state, and the sink may have
// had what came.
func (j *Journal) position(ctx context.Context, sink string, state *store.State) (at mark, why string, err error) {
	v, err := j.table.Get(ctx, j.keys.position+sink)
	if err != nil {
		return mark{}, "", fmt.Errorf("read the position of sink %s: %w", sink, err)
	}
	switch {
	case v.Data == nil && v.Doubtful:
		return mark{}, "values of the store's table were lost, perhaps with it", nil
	case v.Data == nil:
		return mark{}, "", nil // it has acknowledged nothing
	}
	var p positionValue
	if err := json.Unmarshal(v.Data, &p); err != nil {
		return mark{}, fmt.Sprintf("it cannot be read: %v", err), nil
	}
	at = mark{pos: p.Position, sum: p.Sum, events: p.Events, at: p.At}
	end := state.End
	if p.Position > end {
		now, err := j.state(ctx)
		if err != nil {
			return mark{}, "", err
		}
		end = now.End
	}
	switch {
	case p.Version > positionVersion:
		why = fmt.Sprintf("it has the version %d, and this program knows %d", p.Version, positionVersion)
	case p.Sink != sink:
		why = fmt.Sprintf("it is of the sink %q", p.Sink)
	case p.Log != j.id.String():
		why = fmt.Sprintf("it is of the log %s, and the events are in %s", p.Log, j.id)
	case p.Position > end:
		why = fmt.Sprintf("it is %d, and the log ends with %d", p.Position, end)
	default:
		why, err = j.compare(ctx, sink, v.Rev, &at)
	}
	if err != nil || why != "" {
		return mark{}, why, err
	}
	return at, "", nil
}

// compare holds a position against the record that stands there: another one means that the
// log is not the one that was read. A record that was trimmed or damaged says nothing
// against it.
func (j *Journal) compare(ctx context.Context, sink string, rev uint64, at *mark) (why string, err error) {
	if at.sum == 0 || j.reader(sink) != nil {
		return "", nil
	}
	if known, _ := j.compared.Load(sink); known == rev {
		return "", nil
	}
	same, err := j.stands(ctx, at.pos, at.sum)
	switch {
	case err != nil:
		return "", err
	case !same:
		return fmt.Sprintf("another record stands at position %d than the one that the sink acknowledged", at.pos), nil
	}
	j.compared.Store(sink, rev)
	return "", nil
}

// stands reports whether the record at a position has a checksum, or was trimmed or damaged.
func (j *Journal) stands(ctx context.Context, pos store.Pos, sum uint64) (bool, error) {
	r, err := recordFrom(ctx, j.events, pos, pos+1)
	return err == nil && (r == nil || record.Checksum(r.Data) == sum), err
}

// Acknowledged is how far a sink has come, as a position of the log. known is false where that
// cannot be believed.
func (j *Journal) Acknowledged(ctx context.Context, sink string) (position uint64, known bool, err error) {
	state, err := j.state(ctx)
	if err != nil {
		return 0, false, err
	}
	at, why, err := j.position(ctx, sink, &state)
	return uint64(at.pos), err == nil && why == "", err
}

// ID names the journal's log, as long as it is one log: whatever its turn.
func (j *Journal) ID() string { return hex.EncodeToString(j.id.Log[:]) }

// Stream names the log for as long as a position means the same record.
func (j *Journal) Stream() string { return j.id.String() }

// Holds reports whether a record stands in the log, or stood there and was trimmed or damaged
// since. Otherwise the log is another one than the record was read from, or it was set back.
func (j *Journal) Holds(ctx context.Context, r relay.Record) (bool, error) {
	state, err := j.state(ctx)
	if err != nil || store.Pos(r.Position) > state.End {
		return false, err
	}
	return j.stands(ctx, store.Pos(r.Position), r.Checksum)
}

// lowest is the newest position that every registered sink has acknowledged. some is false
// without a sink. The error wraps errUncertain if a position cannot be believed.
func (j *Journal) lowest(ctx context.Context, state *store.State) (lowest store.Pos, some bool, err error) {
	sinks, err := j.registered(ctx)
	if err != nil {
		return 0, false, err
	}
	lowest = state.End
	for _, sink := range sinks {
		at, why, err := j.position(ctx, sink, state)
		if err != nil {
			return 0, false, err
		}
		if why != "" {
			return 0, false, fmt.Errorf("%w: that of sink %s: %s", errUncertain, sink, why)
		}
		lowest = min(lowest, at.pos)
	}
	return lowest, len(sinks) > 0, nil
}

// SinkPosition is how far one sink has come in the journal, and what is kept for it: all
// records that it has not acknowledged.
type SinkPosition struct {
	Sink         string    `json:"sink"`
	Acknowledged uint64    `json:"acknowledged"`      // its newest acknowledged record
	Pending      uint64    `json:"pending_records"`   // the records after it; each holds one event or more
	Oldest       time.Time `json:"oldest,omitzero"`   // when the first of them was committed; zero without any
	HeldBytes    int64     `json:"held_bytes_approx"` // bytes of the pending records, by the average record
	Reading      bool      `json:"reading"`           // this relay reads for the sink right now
	// Kept is when the oldest kept record was committed, so how far back a replay to any sink
	// can reach; zero without any.
	Kept time.Time `json:"kept_since,omitzero"`
	// Unknown is why the position cannot be believed; empty where it can. Nothing is
	// trimmed then, and the sink gets everything that is kept when it is opened.
	Unknown string `json:"unknown,omitempty"`
	// Shards, where the events are spread over several logs, are the positions in each. What is
	// above them is added up.
	Shards []SinkPosition `json:"shards,omitempty"`
}

// Sinks returns the position of each registered sink, configured or not, sorted by name.
func (j *Journal) Sinks(ctx context.Context) ([]SinkPosition, error) {
	state, err := j.state(ctx)
	if err != nil {
		return nil, err
	}
	sinks, err := j.registered(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := j.oldest.time(ctx, j.events, state.First)
	if err != nil {
		return nil, err
	}
	all := make([]SinkPosition, len(sinks))
	return all, durable.SideBySide(len(sinks), func(i int) (err error) { // the store may be far away
		all[i], err = j.sinkPosition(ctx, sinks[i], &state)
		all[i].Kept = kept
		return err
	})
}

func (j *Journal) sinkPosition(ctx context.Context, sink string, state *store.State) (p SinkPosition, err error) {
	p = SinkPosition{Sink: sink, Reading: j.reader(sink) != nil}
	at, why, err := j.position(ctx, sink, state)
	if err != nil {
		return p, err
	}
	p.Acknowledged = uint64(at.pos)
	if why != "" {
		p.Unknown = "its position cannot be believed: " + why
	}
	first := max(at.pos+1, state.First)
	if first > state.End {
		return p, nil
	}
	p.Pending = uint64(state.End + 1 - first)
	p.HeldBytes = int64(float64(state.Bytes) / float64(state.End+1-state.First) * float64(p.Pending))
	r, err := recordFrom(ctx, j.events, first, state.End+1)
	if err == nil && r != nil {
		p.Oldest = r.Time
	}
	return p, err
}

// PositionsIn reads the position of each sink from a store where nobody needs to have the
// journal open. A store without a log of events has none.
func PositionsIn(ctx context.Context, s store.Store) ([]SinkPosition, error) {
	j, err := look(ctx, s, config.Journal{}, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return []SinkPosition{}, nil
	}
	if err != nil {
		return nil, err
	}
	return j.Sinks(ctx)
}

// Retire forgets a sink, so that nothing is kept for it any more. If it comes back, it
// starts at the oldest record. The error wraps ErrNoPosition if nothing was kept for it.
// The caller makes sure that nothing reads for the sink.
//
// A crash between the two writes leaves a registered sink without a position: everything is
// kept for it until it is retired again. A relay that is frozen in here, and goes on once the sink
// has come back, removes nothing: both writes are conditional on the position.
func (j *Journal) Retire(ctx context.Context, sink string) error {
	sinks, err := j.registered(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(sinks, sink) {
		return fmt.Errorf("retire sink %s: %w", sink, ErrNoPosition)
	}
	gone, err := j.removePosition(ctx, sink)
	if err == nil {
		_, err = j.table.Put(ctx, j.keys.sink+sink, nil, gone)
	}
	if errors.Is(err, store.ErrConflict) {
		err = fmt.Errorf("some relay reads for it at present; take it out of every relay's configuration first: %w", err)
	}
	if err != nil {
		return fmt.Errorf("retire sink %s: %w", sink, err)
	}
	return nil
}

// removePosition removes a sink's position, unless it moves, and returns the condition that there
// is none.
func (j *Journal) removePosition(ctx context.Context, sink string) (gone store.If, err error) {
	key := j.keys.position + sink
	was, err := j.table.Get(ctx, key)
	if err == nil {
		err = j.table.PutLazy(ctx, key, nil, store.If{Key: key, Rev: was.Rev})
	}
	if err == nil {
		err = j.table.Sync(ctx)
	}
	if err != nil && !errors.Is(err, store.ErrConflict) { // it may be about another value
		return gone, err
	}
	now, err := j.table.Get(ctx, key)
	if err == nil && now.Data != nil {
		err = store.ErrConflict
	}
	return store.If{Key: key, Rev: now.Rev}, err
}
