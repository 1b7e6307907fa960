package lease

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOneHolderWrites plays relays, their table and a bad network in simulated time: delays,
// lost and doubled answers, cuts in one direction, suspended and slow clocks, kills. Nobody
// writes under another one's epoch, and once the faults end, each job is done by one relay,
// evenly spread, and nothing moves any more.
func TestOneHolderWrites(t *testing.T) {
	t.Parallel()
	seeds := 1000
	if testing.Short() {
		seeds = 200
	}
	if n, err := strconv.Atoi(os.Getenv("AUDITRELAY_SEEDS")); err == nil {
		seeds = n
	}
	for part := range 4 {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			for seed := part; seed < seeds; seed += 4 {
				w := newWorld(uint64(seed))
				w.run(faultsEnd)
				w.heal()
				w.run(faultsEnd + recovery)
				require.Empty(t, w.wrong, "seed %d", seed)
				require.NoError(t, w.settled(), "seed %d", seed)
				moves := w.moves
				w.run(faultsEnd + recovery + quiet)
				require.NoError(t, w.settled(), "seed %d", seed)
				require.Equal(t, moves, w.moves, "seed %d: jobs move although nothing happens", seed)
			}
		})
	}
}

// Of two frozen relays that were declared dead, one goes on, and sees first that the other one is dead.
// It takes nothing from it until a heartbeat of its own has reached the table.
func TestAFrozenRelayTakesNothing(t *testing.T) {
	t.Parallel()
	m := NewMachine("b", "", []string{"job"}, nil, Timing{Beat: DefaultTiming.Beat, Dead: DefaultTiming.Dead})
	m.SawEpoch(0, "job", Epoch{Rev: 1, Number: 1, Holder: "a"})
	m.SawBeat(0, "a", Beat{Rev: 2, Jobs: []string{"job"}})
	require.True(t, m.Decide(0).Beat)
	m.WroteBeat(0, 0, 0, Beat{Rev: 3, Jobs: []string{"job"}})
	require.Empty(t, m.Decide(0).Take)

	late := 16 * time.Second
	m.SawBeat(late, "a", Beat{Rev: 4, Dead: true})
	d := m.Decide(late)
	require.Empty(t, d.Take)
	require.True(t, d.Beat, "it asks whether it is dead, too")
	m.WroteBeat(late, late, late, Beat{Rev: 5, Jobs: []string{"job"}})
	require.Contains(t, m.Decide(late).Take, "job")
}

const (
	faultsEnd = 60 * time.Second
	recovery  = 20 * time.Second
	quiet     = 30 * time.Second
	step      = 200 * time.Millisecond
)

// write is a holder's, under its epoch.
func (w *world) write(p *player, job string, e Epoch) {
	if w.epochs[job].Rev != e.Rev {
		return // refused
	}
	if by, written := w.writers[e.Rev]; written && by != p.name || w.epochs[job].Holder != p.name {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: %s wrote %s under the epoch of %s", w.now, p.name, job, w.epochs[job].Holder))
	}
	w.writers[e.Rev] = p.name
}

// noteOverlap looks for two relays that do one job at a time, as clocks that go on allow none.
func (w *world) noteOverlap(p *player) {
	for job := range p.holds {
		for _, q := range w.relays {
			if _, too := q.holds[job]; too && q != p && !q.dead && !w.pauses && !w.losses {
				w.wrong = append(w.wrong, fmt.Sprintf("%s: %s and %s both do %s", w.now, p.name, q.name, job))
			}
		}
	}
}

// settled returns an error unless each job that some relay can do is done by one, and no relay
// could take one from another that has two more.
func (w *world) settled() error {
	var living []*player
	for _, p := range w.relays {
		if !p.dead && !p.m.leaves {
			living = append(living, p)
		}
	}
	for _, p := range living {
		for _, job := range p.m.jobs {
			e := w.epochs[job]
			i := slices.IndexFunc(living, func(p *player) bool { return p.name == e.Holder })
			if i < 0 || living[i].holds[job].Rev != e.Rev {
				return fmt.Errorf("nobody does %s, whose epoch is %+v", job, e)
			}
			if has := living[i]; len(has.holds) >= len(p.holds)+2 && !slices.Contains(w.sticky, job) {
				return fmt.Errorf("%s has %d jobs, and %s, which could do %s of them, has %d", has.name, len(has.holds), p.name, job, len(p.holds))
			}
		}
	}
	return nil
}
