package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Standing is what the table says of a cluster's relays and jobs, each sorted by name.
type Standing struct {
	Relays []Relay `json:"relays"`
	Jobs   []Job   `json:"jobs"`
}

// Relay is one that takes part, and that nobody has declared dead.
type Relay struct {
	Name string `json:"name"`
	// Heartbeat is when it wrote its newest one, by its own clock: for people, and for no
	// decision.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	// Says is what it tells the others: see [Options.Says].
	Says string `json:"says,omitempty"`
}

// Job is a job that has, or had, a holder.
type Job struct {
	Name string `json:"job"`
	// Holder is empty while nobody has the job. For is then the relay that it was released for.
	Holder string `json:"holder,omitempty"`
	For    string `json:"released_for,omitempty"`
	// Epoch counts the holders that the job has had, and Rev is the epoch's revision.
	Epoch uint64 `json:"epoch,omitempty"`
	Rev   uint64 `json:"revision,omitempty"`
	// Since is when the epoch was written, by its writer's clock.
	Since time.Time `json:"since,omitzero"`
}

// State reads who takes part and who has which job. It may be stale, as [store.Table.List].
// A store that no cluster ever used has neither relays nor jobs.
func State(ctx context.Context, table store.Table) (Standing, error) {
	s := Standing{Relays: []Relay{}, Jobs: []Job{}}
	values, err := table.List(ctx, clusterKeys)
	if err != nil {
		return s, fmt.Errorf("read who does which job of the cluster: %w", err)
	}
	for _, v := range values {
		if name, is := strings.CutPrefix(v.Key, beatKey); is {
			b := beatOf(v) // a heartbeat that cannot be read is one all the same
			s.Relays = append(s.Relays, Relay{Name: name, Heartbeat: b.At, Says: b.Says})
		} else if name, is := strings.CutPrefix(v.Key, epochKey); is {
			e, _ := epochOf(v) // one that cannot be read has no holder
			s.Jobs = append(s.Jobs, Job{Name: name, Holder: e.Holder, For: e.For, Epoch: e.Number, Rev: e.Rev, Since: e.Since})
		}
	}
	return s, nil
}
