package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// holdPause is how often a waiting source looks whether it may go on.
const holdPause = 500 * time.Millisecond

// fuse knows the damage of the events' stream. More of it than chance explains (see
// [datadir.BeyondChance]) may be a mistake of ours, and passing over it would lose
// sound events: sinks wait before it until a person accepts it, while pushes are
// taken. Only the embedded journal has one: nothing here repairs an external cluster.
type fuse struct {
	log   *slog.Logger
	blown prometheus.Gauge

	mu       sync.Mutex
	accepted uint64            // damage up to this position is accepted; guarded by mu
	damaged  []datadir.Span    // behind it, as named in the quarantine; guarded by mu
	records  uint64            // readable records, when damage was found last; guarded by mu
	held     bool              // guarded by mu
	waiting  map[string]string // by sink, what it waits for; guarded by mu
}

func newFuse(log *slog.Logger, reg prometheus.Registerer) *fuse {
	f := &fuse{log: log, blown: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "auditrelay_journal_damage_held",
		Help: "1 while sinks wait before damaged records until a person accepts the damage.",
	}), waiting: map[string]string{}}
	reg.MustRegister(f.blown)
	return f
}

// Damage is what is damaged in the journal and not accepted by a person yet.
type Damage struct {
	// Held says that it is too much to be chance, so that sinks wait before it.
	Held bool `json:"held"`
	// Records are damaged or lost; Readable is how many others there are.
	Records  uint64 `json:"records"`
	Readable uint64 `json:"readable"`
	// First is the first damaged position, 0 for none.
	First uint64 `json:"first_position,omitempty"`
	// Waiting says by sink what it waits for.
	Waiting map[string]string `json:"waiting,omitempty"`
}

// Damage tells what a person has not accepted yet.
func (j *Journal) Damage() Damage { return j.fuse.state() }

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

// reset forgets what was noted, so that all of it can be noted again.
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

// wait notes what a sink waits for, or with "" that it goes on.
func (f *fuse) wait(sink, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sink = strings.TrimPrefix(sink, consumerPrefix)
	if why == "" {
		delete(f.waiting, sink)
		return
	}
	f.waiting[sink] = why
}

// holdBefore waits while the fuse holds the sink before the positions. Nothing
// behind them is given out meanwhile, and so nothing acknowledged.
func (s *Source) holdBefore(ctx context.Context, at datadir.Span) error {
	defer s.j.fuse.wait(s.name, "")
	for s.j.fuse.holds(at) {
		s.j.fuse.wait(s.name, fmt.Sprintf("a person to accept the damage at positions %d to %d", at.From, at.To))
		if err := pause.For(ctx, holdPause); err != nil {
			return err
		}
	}
	return nil
}

// holdVersion waits at a record of a later version, for as long as this version
// runs: the record is sound, and the version that wrote it will deliver it.
func (s *Source) holdVersion(ctx context.Context, seq uint64, why error) error {
	s.j.log.Error("a sink waits at a record that this version cannot read; pushes are taken as before",
		"consumer", s.name, "position", seq, "error", why, "do", streamserver.AdviceLater)
	s.j.fuse.wait(s.name, fmt.Sprintf("position %d: %v", seq, why))
	defer s.j.fuse.wait(s.name, "")
	<-ctx.Done()
	return ctx.Err()
}

// accountForDamage sets the fuse as the quarantine has it, and names what it
// does not have yet.
func (j *Journal) accountForDamage(ctx context.Context) error {
	known, accepted, err := j.readQuarantine(ctx)
	if err != nil {
		return err
	}
	j.fuse.reset(accepted)
	for _, q := range known {
		if err := j.noteDamage(ctx, q); err != nil {
			return err
		}
	}
	return j.reportLosses(ctx)
}

// noteDamage tells the fuse of damage that the quarantine names.
func (j *Journal) noteDamage(ctx context.Context, q datadir.Quarantined) error {
	if !j.conn.Embedded() || q.Stream != j.names.events || q.Loss != "" {
		return nil
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	j.fuse.note(datadir.Span{From: q.From, To: q.To}, info.State.Msgs)
	return nil
}

// ErrNoDamage says that there is no damage to accept.
var ErrNoDamage = errors.New("the journal has no damage that waits to be accepted")

// AcceptDamage lets sinks pass over all damaged records that the journal holds
// now, whether they were found already or not, and returns what they were. It is durable:
// a crash before the publish leaves all as it was, one after it makes the next
// start go on.
func (j *Journal) AcceptDamage(ctx context.Context) (Damage, error) {
	was := j.fuse.state()
	if was.Records == 0 {
		return was, ErrNoDamage
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return was, fmt.Errorf("read the journal's state: %w", err)
	}
	m := datadir.AcceptanceMessage(j.names.quarantineSubject, info.State.LastSeq)
	_, err = j.conn.JetStream.PublishMsg(ctx, m)
	if err == nil {
		err = j.conn.Settle(j.names.quarantine)
	}
	if err != nil {
		return was, fmt.Errorf("accept the damage: %w", err)
	}
	j.fuse.accept(info.State.LastSeq)
	return was, nil
}
