package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	// So many damaged records may be chance. Among more records, 1 in chanceShare may be.
	chanceRecords = 10
	chanceShare   = 100
)

// beyondChance reports whether the damage is more likely a mistake of ours, such as a form
// that this version reads wrongly.
func beyondChance(damaged, readable uint64) bool {
	all := damaged + readable
	return damaged > chanceRecords || all >= chanceShare && damaged*chanceShare > all
}

// acceptedKey is the table's key of the damage that a person accepted.
const acceptedKey = "accepted"

// acceptance lets sinks pass over all damage of a log up to a position.
type acceptance struct {
	ID      string    `json:"log_id"`
	Through store.Pos `json:"through"`
}

// fuse knows the damage of the events that nobody accepted. Where it is beyond chance, to
// pass over it could lose sound events. So sinks wait before it, while ingest takes pushes.
// What a power cut tore at the end does not count: that is no more than was to be expected.
type fuse struct {
	log   *slog.Logger
	blown prometheus.Gauge

	mu       sync.Mutex
	of       string            // the ID of the log of events, once it is watched; guarded by mu
	accepted store.Pos         // damage up to here is accepted; guarded by mu
	damaged  map[string]ranges // all damage, by the ID of the log; guarded by mu
	readable uint64            // other records, when damage was found last; guarded by mu
	held     bool              // guarded by mu
	changed  chan struct{}     // closed when a held sink may go on; guarded by mu
	waiting  map[string]string // the reason by sink; guarded by mu
}

func newFuse(o QuarantineOptions) *fuse {
	f := &fuse{log: o.Logger, blown: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "auditrelay_journal_damage_held",
		Help: "1 while sinks wait before damaged records until a person accepts the damage.",
	}), damaged: map[string]ranges{}, changed: make(chan struct{}), waiting: map[string]string{}}
	o.Registerer.MustRegister(f.blown)
	return f
}

// Damage is the damage of the events that no person has accepted.
type Damage struct {
	// Held says that it is too much for chance, and that sinks wait before it.
	Held bool `json:"held"`
	// Records are damaged or lost. Readable is how many others there are.
	Records  uint64 `json:"records"`
	Readable uint64 `json:"readable"`
	// First is the first damaged position, 0 for none.
	First store.Pos `json:"first_position,omitempty"`
	// Waiting has each waiting sink's reason.
	Waiting map[string]string `json:"waiting,omitempty"`
}

func (f *fuse) state() Damage {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.left()
	d := Damage{Held: f.held, Records: left.size(), Readable: f.readable, Waiting: maps.Clone(f.waiting)}
	if len(left) > 0 {
		d.First = left[0].from
	}
	return d
}

// left is the damage that nobody accepted. mu is held.
func (f *fuse) left() ranges { return f.damaged[f.of].from(f.accepted + 1) }

// note takes damage of a log into account. It counts once [fuse.judge] is called.
func (f *fuse) note(log string, from, to store.Pos) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.damaged[log] = f.damaged[log].with(from, to)
}

// judge blows the fuse if the damage is too much, where so many records can be read.
func (f *fuse) judge(log string, readable uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of, f.readable = log, readable
	n := f.left().size()
	if f.held || !beyondChance(n, readable) {
		return
	}
	f.held = true
	f.blown.Set(1)
	f.log.Error("too many records of the journal are damaged for chance: sinks wait before them, pushes are taken as before",
		"damaged", n, "readable", readable, "do", adviceAccept)
}

const adviceAccept = "look into it with 'auditrelay journal verify' on a copy of the data directory; then run 'auditrelay journal accept-damage' to go on without these records"

// accept lets sinks pass over damage up to a position.
func (f *fuse) accept(through store.Pos) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted = max(f.accepted, through)
	if f.held = f.held && len(f.left()) > 0; !f.held {
		f.blown.Set(0)
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// holds says whether a sink must wait before the positions, and until when.
func (f *fuse) holds(from, to store.Pos) (until <-chan struct{}, held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed, f.held && f.left().count(from, to) > 0
}

// wait notes a sink's reason to wait; "" ends it.
func (f *fuse) wait(sink, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why == "" {
		delete(f.waiting, sink)
		return
	}
	f.waiting[sink] = why
}

// HoldBefore waits while the fuse holds a sink before a gap of the events, which is named
// already. The source gives out nothing after the gap meanwhile, so nobody acknowledges it.
func (q *Quarantine) HoldBefore(ctx context.Context, sink string, gap store.Gap) error {
	defer q.fuse.wait(sink, "")
	for {
		until, held := q.fuse.holds(gap.From, gap.To)
		if !held {
			return nil
		}
		q.fuse.wait(sink, fmt.Sprintf("a person to accept the damage at positions %d to %d", gap.From, gap.To))
		select {
		case <-until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// HoldVersion has a sink wait at a record of a later version until ctx ends. The record is
// sound, and a later version delivers it.
func (q *Quarantine) HoldVersion(ctx context.Context, sink string, pos store.Pos, why error) error {
	q.opts.Logger.Error("a sink waits at a record that this version cannot read; pushes are taken as before",
		"sink", sink, "position", pos, "error", why, "do", "run the version of auditrelay that wrote it, or a later one")
	q.fuse.wait(sink, fmt.Sprintf("position %d: %v", pos, why))
	defer q.fuse.wait(sink, "")
	<-ctx.Done()
	return ctx.Err()
}

// Damage is the damage that no person has accepted.
func (q *Quarantine) Damage() Damage { return q.fuse.state() }

// ErrNoDamage means that there is no damage to accept.
var ErrNoDamage = errors.New("the journal has no damage to be accepted")

// Accept lets sinks pass over all damaged events up to the present end, found already or
// not, and returns the damage. A crash before the put changes nothing, and after it the
// next start goes on.
func (q *Quarantine) Accept(ctx context.Context) (Damage, error) {
	was := q.fuse.state()
	if was.Records == 0 {
		return was, ErrNoDamage
	}
	state, err := q.state(ctx, EventsLog)
	if err != nil {
		return was, err
	}
	value, err := json.Marshal(acceptance{ID: state.ID.String(), Through: state.End})
	if err == nil {
		_, err = q.store.Table().Put(ctx, acceptedKey, value, store.If{})
	}
	if err != nil {
		return was, fmt.Errorf("accept the damage: %w", err)
	}
	q.fuse.accept(state.End)
	return was, nil
}

// loadDamage sets the fuse by the names of the events, and by what a person accepted.
func (q *Quarantine) loadDamage(ctx context.Context) error {
	state, err := q.state(ctx, EventsLog)
	if err != nil {
		return err
	}
	value, err := q.store.Table().Get(ctx, acceptedKey)
	if err != nil {
		return fmt.Errorf("read the accepted damage: %w", err)
	}
	var accepted acceptance
	if json.Unmarshal(value.Data, &accepted) == nil && accepted.ID == state.ID.String() {
		q.fuse.accept(accepted.Through)
	}
	if err := q.turn.take(ctx); err != nil {
		return err
	}
	defer q.turn.free()
	q.judge(&state)
	return nil
}
