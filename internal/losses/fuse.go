package losses

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// holdPause is the wait between two looks of a held sink.
const holdPause = 500 * time.Millisecond

// fuse knows the damage of the events' stream. More than chance explains (see
// [datadir.BeyondChance]) may be a mistake of ours, and passing over it would lose sound
// events. So sinks wait before it until a person accepts it, while ingest takes pushes.
// Only the embedded journal has one: nothing here repairs an external cluster.
type fuse struct {
	log   *slog.Logger
	blown prometheus.Gauge

	mu       sync.Mutex
	accepted uint64            // damage up to this position is accepted; guarded by mu
	damaged  []datadir.Span    // behind it, by the quarantine; guarded by mu
	records  uint64            // readable records, when damage was found last; guarded by mu
	held     bool              // guarded by mu
	waiting  map[string]string // the reason by sink; guarded by mu
}

func newFuse(log *slog.Logger, reg prometheus.Registerer) *fuse {
	f := &fuse{log: log, blown: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "auditrelay_journal_damage_held",
		Help: "1 while sinks wait before damaged records until a person accepts the damage.",
	}), waiting: map[string]string{}}
	reg.MustRegister(f.blown)
	return f
}

// Damage is the damage of the events' stream without a person's acceptance.
type Damage struct {
	// Held: it is too much for chance, and sinks wait before it.
	Held bool `json:"held"`
	// Records are damaged or lost; Readable is how many others there are.
	Records  uint64 `json:"records"`
	Readable uint64 `json:"readable"`
	// First is the first damaged position, 0 for none.
	First uint64 `json:"first_position,omitempty"`
	// Waiting is each waiting sink's reason.
	Waiting map[string]string `json:"waiting,omitempty"`
}

func (f *fuse) state() Damage {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := Damage{Held: f.held, Records: f.count(), Readable: f.records, Waiting: map[string]string{}}
	if len(f.damaged) > 0 {
		d.First = f.damaged[0].From
		for _, s := range f.damaged {
			d.First = min(d.First, s.From)
		}
	}
	for sink, why := range f.waiting {
		d.Waiting[sink] = why
	}
	return d
}

// count is how many damaged records there are. mu is held.
func (f *fuse) count() (n uint64) {
	for _, s := range f.damaged {
		n += s.To - s.From + 1
	}
	return n
}

// reset forgets all damage, to note it again.
func (f *fuse) reset(accepted uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted, f.damaged, f.held = accepted, nil, false
	f.blown.Set(0)
}

// note takes damage into account, beside so many readable records.
func (f *fuse) note(s datadir.Span, records uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.records = records
	if s.To > f.accepted {
		f.damaged = append(f.damaged, datadir.Span{From: max(s.From, f.accepted+1), To: s.To})
	}
	n := f.count()
	if f.held || !datadir.BeyondChance(n, records) {
		return
	}
	f.held = true
	f.blown.Set(1)
	f.log.Error("too many records of the journal are damaged for chance: sinks wait before them, pushes are taken as before",
		"damaged", n, "readable", records, "do", adviceAccept)
}

const adviceAccept = "look into it with 'auditrelay journal verify' on a copy of the data directory; then run 'auditrelay journal accept-damage' to go on without these records"

// accept lets sinks pass over damage up to a position.
func (f *fuse) accept(through uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.accepted = max(f.accepted, through)
	var left []datadir.Span
	for _, s := range f.damaged {
		if s.To > f.accepted {
			left = append(left, datadir.Span{From: max(s.From, f.accepted+1), To: s.To})
		}
	}
	f.damaged = left
	f.held = f.held && len(left) > 0
	if !f.held {
		f.blown.Set(0)
	}
}

// holds reports whether a sink must wait before the run of positions.
func (f *fuse) holds(at datadir.Span) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.held {
		return false
	}
	for _, s := range f.damaged {
		if at.From <= s.To && s.From <= at.To {
			return true
		}
	}
	return false
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

// HoldBefore waits while the fuse holds a sink before the positions. The source gives out
// nothing behind them meanwhile, so nobody acknowledges them.
func (l *Ledger) HoldBefore(ctx context.Context, sink string, at datadir.Span) error {
	defer l.fuse.wait(sink, "")
	for l.fuse.holds(at) {
		l.fuse.wait(sink, fmt.Sprintf("a person to accept the damage at positions %d to %d", at.From, at.To))
		if err := pause.For(ctx, holdPause); err != nil {
			return err
		}
	}
	return nil
}

// HoldVersion has a sink wait at a record of a later version until ctx ends. The record is
// sound, and a later version delivers it.
func (l *Ledger) HoldVersion(ctx context.Context, sink string, seq uint64, why error) error {
	l.log.Error("a sink waits at a record that this version cannot read; pushes are taken as before",
		"consumer", streamserver.SinkConsumers+sink, "position", seq, "error", why, "do", streamserver.AdviceLater)
	l.fuse.wait(sink, fmt.Sprintf("position %d: %v", seq, why))
	defer l.fuse.wait(sink, "")
	<-ctx.Done()
	return ctx.Err()
}

// loadDamage sets the fuse by the quarantine.
func (l *Ledger) loadDamage(ctx context.Context) error {
	known, accepted, err := read(ctx, l.conn.JetStream, l.layout.Quarantine)
	if err != nil {
		return err
	}
	l.fuse.reset(accepted)
	for _, q := range known {
		if err := l.noteDamage(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// noteDamage tells the fuse of a named loss.
func (l *Ledger) noteDamage(ctx context.Context, q datadir.Quarantined) error {
	if !l.conn.Embedded() || q.Stream != l.layout.Events || q.Loss != "" {
		return nil
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	l.fuse.note(datadir.Span{From: q.From, To: q.To}, info.State.Msgs)
	return nil
}

// Damage is the damage without a person's acceptance.
func (l *Ledger) Damage() Damage { return l.fuse.state() }

// ErrNoDamage means no damage to accept.
var ErrNoDamage = errors.New("the journal has no damage to be accepted")

// Accept lets sinks pass over all damaged records up to the present end, found already or
// not, and returns the damage. It is durable: a crash before the publish changes nothing,
// and after one behind it the next start goes on.
func (l *Ledger) Accept(ctx context.Context) (Damage, error) {
	was := l.fuse.state()
	if was.Records == 0 {
		return was, ErrNoDamage
	}
	info, err := l.info(ctx)
	if err != nil {
		return was, err
	}
	if err := l.conn.Put(ctx, l.layout.Quarantine, datadir.AcceptanceMessage(l.subject, info.State.LastSeq)); err != nil {
		return was, fmt.Errorf("accept the damage: %w", err)
	}
	l.fuse.accept(info.State.LastSeq)
	return was, nil
}
