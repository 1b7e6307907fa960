package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
)

// victim is a relay with a job, and what it does.
type victim struct {
	*relayNode
	member string
	jobs   []string // those that are not a sink's; all with several shards
	sinks  []string
}

// has reports whether a job was the victim's.
func (v victim) has(job string) bool {
	sink, _ := sinkOf(job)
	return slices.Contains(v.jobs, job) || slices.Contains(v.sinks, sink)
}

// sinkJob begins the names of the sinks' jobs.
const sinkJob = "sink/"

// holder draws a job, and returns the relay that does it.
func (r *round) holder(ctx context.Context) (v victim, err error) {
	err = r.until(ctx, "some job has a relay", func() bool {
		status, err := r.standing(ctx)
		if err != nil || len(status.Jobs) == 0 {
			return false
		}
		relay := r.relayOfMember(status.Jobs[r.rng.IntN(len(status.Jobs))].Holder)
		if relay == nil {
			return false
		}
		v = r.victimIn(&status, relay)
		return true
	})
	return v, err
}

// victimOf is a relay with the jobs that it does by now.
func (r *round) victimOf(ctx context.Context, relay *relayNode) victim {
	status, err := r.standing(ctx)
	if err != nil {
		return victim{relayNode: relay, member: relay.member()}
	}
	return r.victimIn(&status, relay)
}

// victimIn leaves out the sinks to which the relay does not deliver yet.
func (r *round) victimIn(status *app.ClusterStatus, relay *relayNode) victim {
	v := victim{relayNode: relay, member: relay.member()}
	for _, job := range status.Jobs {
		if job.Holder != v.member {
			continue
		}
		sink, is := sinkOf(job.Name)
		if !is || r.shards > 1 {
			v.jobs = append(v.jobs, job.Name)
		}
		if is && r.sinks[sink].holder() == v.name && !slices.Contains(v.sinks, sink) {
			v.sinks = append(v.sinks, sink)
		}
	}
	return v
}

// String says who it is, for a round's line.
func (v victim) String() string {
	return fmt.Sprintf("%s (%s)", v.name, strings.Join(append(slices.Clone(v.jobs), v.sinks...), ", "))
}

// movesWithin is how long the jobs of a relay that is gone may take until others do them.
const movesWithin = time.Minute

// movesFrom waits until others do all that a relay did, and notes the times. A sink's is that
// of the first delivery from another relay. With several shards another one may deliver to the sink
// all the while, so that its jobs count as others do.
func (r *round) movesFrom(ctx context.Context, v victim, after string, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, movesWithin)
	defer cancel()
	for _, sink := range v.sinks {
		if r.shards > 1 {
			break
		}
		var at time.Time
		err := r.until(ctx, "another relay delivers to "+sink, func() (ok bool) {
			at, ok = r.sinks[sink].other(v.name, since)
			return ok
		})
		if err != nil {
			return err
		}
		r.moves = append(r.moves, move{after, at.Sub(since)})
	}
	if len(v.jobs) == 0 {
		return nil
	}
	return r.until(ctx, "another relay does "+strings.Join(v.jobs, ", "), func() bool {
		status, err := r.standing(ctx, v.relayNode)
		if err != nil {
			return false
		}
		for _, job := range status.Jobs {
			if slices.Contains(v.jobs, job.Name) && (job.Holder == v.member || job.Holder == "") {
				return false
			}
		}
		r.moves = append(r.moves, move{after, time.Since(since)})
		return true
	})
}
