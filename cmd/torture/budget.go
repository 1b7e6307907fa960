package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// budgetBytes is the journal's, in the scenario budget.
const budgetBytes = 4 << 20

// spentBudget runs a small journal to its end. While every sink keeps up,
// delivered events give way, and no push is refused. Then Kafka is gone, and one
// environment floods: it is refused, and the others never are.
func spentBudget(ctx context.Context, t *trial) error {
	s, err := t.running(ctx, setting{
		ingest: ", limits: {body_bytes: 1MiB}", more: "journal: {max_bytes: 4MiB}\n",
	})
	if err != nil {
		return err
	}
	defer s.close()
	b := &spender{s}
	for _, phase := range []func(context.Context) error{s.steady, b.overflow, b.flood, s.settle} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// spender is a scene whose journal's budget is spent.
type spender struct{ *scene }

// overflow pushes several times the budget, while the sinks keep up.
func (b *spender) overflow(ctx context.Context) error {
	const times = 3
	stored := 0.0
	if err := b.while(ctx, "several budgets are spent", func() int64 {
		stored, _ = sumOf(b.metrics(ctx), "auditrelay_journal_stored_bytes_total")
		return times*budgetBytes - int64(stored)
	}, func() bool { return stored > times*budgetBytes }); err != nil {
		return err
	}
	text := b.metrics(ctx)
	full, _ := sumOf(text, `auditrelay_ingest_rejected_total{reason="journal_full"}`)
	room, _ := sumOf(text, "auditrelay_ingest_environment_refused_total")
	b.t.row.rounds++
	b.t.remark("%.1f MiB went through a budget of %d MiB; refused meanwhile: %.0f", stored/(1<<20), budgetBytes>>20, full+room)
	if full+room > 0 {
		return fmt.Errorf("with sinks that keep up, %.0f pushes were refused for want of room", full+room)
	}
	return nil
}

// flood has the first environment fill the journal while Kafka is gone, and
// watches the others.
func (b *spender) flood(ctx context.Context) error {
	const quiet, lasts = 5.0, 15 * time.Second
	flooder, others := b.environments[0], b.environments[1:]
	for _, e := range others {
		if err := b.sim.SetRate(e.Project, e.Environment, quiet); err != nil {
			return err
		}
	}
	if err := b.sim.SetRate(flooder.Project, flooder.Environment, b.t.rate); err != nil {
		return err
	}
	b.kafkaProxy.set(fault{refuse: true})
	more := func() int64 { return -int64(b.sim.Counts().Acknowledged) }
	if err := b.while(ctx, "the environment that floods is refused", more, func() bool { return b.refused(ctx, flooder) > 0 }); err != nil {
		return err
	}
	b.t.progress("%s floods, and is refused", flooder.Environment)
	before := b.sim.Ledgers()
	for deadline := time.Now().Add(lasts); time.Now().Before(deadline); {
		if code, text := b.ask(ctx, "/readyz"); code != http.StatusOK {
			return fmt.Errorf("the relay is not ready, though it takes pushes of quiet environments: %d %s", code, text)
		}
		if err := b.hold(ctx, time.Second); err != nil {
			return err
		}
	}
	if err := b.taken(ctx, others, before, b.sim.Ledgers()); err != nil {
		return err
	}
	b.t.row.rounds++
	b.t.remark("%.0f pushes of the environment that floods were refused", b.refused(ctx, flooder))
	b.kafkaProxy.set(fault{})
	return nil
}

// taken reports whether all events of each quiet environment were taken.
func (b *spender) taken(ctx context.Context, quiet []workspacesim.Environment, before, after []workspacesim.Ledger) error {
	for i, e := range quiet {
		was, is := before[i+1].Counts, after[i+1].Counts // skipping the one that floods
		if n := b.refused(ctx, e); n > 0 {
			return fmt.Errorf("%s is quiet, and %.0f of its pushes were refused", e.Environment, n)
		}
		if is.Acknowledged <= was.Acknowledged {
			return fmt.Errorf("%s is starved: %d events acknowledged before and after", e.Environment, is.Acknowledged)
		}
		b.t.remark("meanwhile %d of the %d events of %s were taken", is.Acknowledged-was.Acknowledged, is.Generated-was.Generated, e.Environment)
	}
	return nil
}

// refused counts the pushes of an environment that were refused for its share.
func (b *spender) refused(ctx context.Context, e workspacesim.Environment) float64 {
	n, _ := sumOf(b.metrics(ctx), fmt.Sprintf(`auditrelay_ingest_environment_refused_total{environment=%q,project=%q`, e.Environment, e.Project))
	return n
}
