package main

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// damaged kills the relay, damages its files, and starts it again. Events in the
// damaged records may be lost to sinks without them, and the quarantine must then name
// those. Nothing else may be lost, or named.
func damaged(ctx context.Context, t *trial) error {
	// With this budget the store makes segments of 1 MiB, of which the test needs several.
	s, err := t.newScene(ctx, setting{more: "journal: {max_bytes: 32MiB}\n"})
	if err != nil {
		return err
	}
	defer s.close()
	w := &wreck{scene: s, struck: map[store.Pos][]string{}, seen: map[store.Pos]bool{}}
	ways, rng := strikes(), t.random()
	for rounds := share(t.rounds, 4); t.row.rounds < rounds; t.row.rounds++ {
		if err := w.live(ctx, rng.IntN(2) == 0, 1+rng.Uint64N(uint64(t.rate))); err != nil {
			return fmt.Errorf("after %s: %w", w.last, err)
		}
		last, err := s.files().Records(eventsLog)
		if err != nil {
			return err
		}
		d, err := ways[t.row.rounds%len(ways)](s, rng)
		if err != nil {
			return err
		}
		if err := w.note(ctx, d, last); err != nil {
			return fmt.Errorf("after %s: %w", w.last, err)
		}
	}
	if err := w.startReady(ctx); err != nil {
		return fmt.Errorf("after %s: %w", w.last, err)
	}
	return w.account(ctx)
}

// wreck is a scene whose relay's files are damaged again and again.
type wreck struct {
	*scene
	last   string                 // damage
	struck map[store.Pos][]string // damaged positions, with the ids of their events
	seen   map[store.Pos]bool     // positions that a reader of the files missed before the start
}

// live is one run under load, ended by a kill. With owed, Kafka is gone for its last
// part, so the damage meets undelivered records.
func (w *wreck) live(ctx context.Context, owed bool, events uint64) error {
	if err := w.startReady(ctx); err != nil {
		return err
	}
	if owed {
		w.kafkaProxy.set(fault{refuse: true})
	}
	if err := w.waitAcknowledged(ctx, w.sim.Counts().Acknowledged+events); err != nil {
		return err
	}
	w.relay.kill()
	w.kafkaProxy.set(fault{})
	return nil
}

// note remembers the damage, and what a reader of the files misses.
func (w *wreck) note(ctx context.Context, d strike, before []damage.Place) error {
	w.last = d.about
	for _, r := range d.records {
		w.struck[r.Pos] = append(w.struck[r.Pos], r.ids...)
	}
	if n := len(before); n > 0 {
		for i := range d.doubt {
			at := before[n-1].Pos + 1 + i
			w.struck[at] = append(w.struck[at], "")
			w.seen[at] = true
		}
	}
	w.t.progress("round %d: %s, which strikes %d records", w.t.row.rounds+1, d.about, len(d.records))
	missed, err := w.files().Gaps(ctx, eventsLog)
	if err != nil {
		return err
	}
	for _, m := range missed {
		if err := take(w.seen, m); err != nil {
			return fmt.Errorf("what a reader misses: %w", err)
		}
	}
	return nil
}

// account compares the events missing at the sinks with the positions in the
// quarantine. The quarantine is read from the stopped relay. Started once more, it must
// find nothing further.
func (w *wreck) account(ctx context.Context) error {
	if err := w.quiet(ctx); err != nil {
		return err
	}
	if err := w.trail(ctx); err != nil {
		return err
	}
	if err := w.accept(ctx); err != nil {
		return err
	}
	// What no sink reads any more is named by the scrub, which begins a second after the start.
	if err := w.until(ctx, "all damage is named", func() bool {
		v, err := w.verify(ctx)
		return err == nil && v.settled() == nil
	}); err != nil {
		return err
	}
	if err := w.relay.stop(); err != nil {
		return err
	}
	named, err := w.named(ctx)
	if err != nil {
		return err
	}
	if err := w.startReady(ctx); err != nil {
		return err
	}
	var excused []string
	for at := range named {
		excused = append(excused, w.struck[at]...)
	}
	missing, err := w.count(ctx, excused)
	if err != nil {
		return err
	}
	w.t.remark("%d records damaged or doubtful, %d of them acknowledged and named in the quarantine; of their events missing: kafka %d, nats %d, file %d",
		len(w.struck), len(named), missing["kafka"], missing["nats"], missing["file"])
	if err := w.relay.stop(); err != nil {
		return err
	}
	again, err := w.named(ctx)
	if err == nil && !maps.Equal(named, again) {
		err = fmt.Errorf("a further start names other positions: %d, and %d before", len(again), len(named))
	}
	return err
}

// accept lets the sinks pass over damage after they have waited for a person.
func (w *wreck) accept(ctx context.Context) error {
	if held, _ := sumOf(w.metrics(ctx), "auditrelay_journal_damage_held "); held == 0 {
		return nil
	}
	out, err := exec.CommandContext(ctx, w.binary, "journal", "accept-damage", "--config", w.config, "--yes").CombinedOutput()
	if err != nil {
		return fmt.Errorf("accept the damage: %w: %s", err, out)
	}
	w.t.remark("the sinks waited until the damage was accepted")
	return nil
}

// trail checks the relay's promises about a damaged trail: it can be used, it takes entries,
// and its entries are signed.
func (w *wreck) trail(ctx context.Context) error {
	text := w.metrics(ctx)
	value := func(name string) float64 { sum, _ := sumOf(text, "auditrelay_audit_"+name+" "); return sum }
	w.t.remark("the trail has %.0f entries in %.0f generations, %.0f of them damaged", value("entries"), value("generations"), value("damaged_entries"))
	if value("usable") != 1 || value("entries") == 0 {
		return fmt.Errorf("the audit trail cannot be used after its files were damaged: %s", w.relay.tail())
	}
	return nil
}

// take adds a run of positions to a set.
func take(set map[store.Pos]bool, s damage.Stretch) error {
	const most = 1_000_000 // far more records than there are
	if s.To >= s.From && s.To-s.From > most {
		return fmt.Errorf("positions %d to %d were never given out", s.From, s.To)
	}
	for at := s.From; at <= s.To; at++ {
		set[at] = true
	}
	return nil
}

// named returns the positions of events in the quarantine. Each must have been damaged, and
// missed by a reader before; nothing may be left open.
func (w *wreck) named(ctx context.Context) (map[store.Pos]bool, error) {
	all, err := w.files().Quarantined(ctx)
	if err != nil {
		return nil, err
	}
	named := map[store.Pos]bool{}
	for _, q := range all {
		if q.Log != eventsLog {
			continue
		}
		if err := take(named, q); err != nil {
			return nil, fmt.Errorf("what the quarantine says: %w", err)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(named)) {
		_, struck := w.struck[at] // of a record with the relay's own events, which have no ids
		switch {
		case !struck:
			return nil, fmt.Errorf("position %d is in the quarantine, and was not damaged", at)
		case !w.seen[at]:
			return nil, fmt.Errorf("position %d was damaged, and a reader of the files did not miss it", at)
		}
	}
	v, err := w.verify(ctx)
	if err != nil {
		return nil, err
	}
	return named, v.settled()
}
