package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

// eventsStream is the stream of a shard.
func eventsStream(shard int) string {
	if shard == 0 {
		return "AUDITRELAY_EVENTS"
	}
	return fmt.Sprintf("AUDITRELAY_EVENTS_%d", shard)
}

// elect has one shard elect a leader, and checks that each environment of the other shards is taken
// before that one has a leader again. If there is one shard, there are several afterwards.
func elect(ctx context.Context, r *round) error {
	if r.shards == 1 {
		if err := errors.Join(r.configure(ctx, mostShards), r.isSpread(ctx)); err != nil {
			return err
		}
	}
	of := r.shardsOf()
	shard, server := of[r.rng.IntN(len(of))], r.rng.IntN(servers)
	if err := r.leadsOnly(ctx, server, shard); err != nil {
		return err
	}
	r.load.watch()
	began := time.Now()
	r.servers.Kill(server)
	err := r.until(ctx, eventsStream(shard)+" has a leader", func() bool {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		leader, err := r.servers.leader(asking, eventsStream(shard))
		return err == nil && leader != server
	})
	r.note("shard %d, led by %s, elects for %s", shard, serverName(server), seconds(time.Since(began)))
	for environment, t := range r.load.watched() {
		r.note("shard %d takes %d pushes, and none for %s", of[environment], t.batches, seconds(t.gap))
		if of[environment] != shard && t.batches == 0 {
			err = errors.Join(err, fmt.Errorf("no push of an environment in shard %d was taken while shard %d elected its leader", of[environment], shard))
		}
	}
	return errors.Join(err, retry.Sleep(ctx, r.between(0, 2*time.Second)), r.servers.Restart(ctx, server))
}

// shardsOf is the shard of each environment that the load pushes to.
func (r *round) shardsOf() (all []int) {
	for _, e := range r.workspace.Environments() {
		all = append(all, journal.ShardOf(relay.SourceOf(e.Project, e.Environment), r.shards))
	}
	return all
}

// leadsOnly makes a server the leader of one shard, and others those of everything else.
func (r *round) leadsOnly(ctx context.Context, server, shard int) error {
	other := serverName((server + 1) % servers)
	err := r.servers.client.Prefer(ctx, tableStream, other)
	for k := range r.shards {
		leader := other
		if k == shard {
			leader = serverName(server)
		}
		err = errors.Join(err, r.servers.client.Prefer(ctx, eventsStream(k), leader))
	}
	return err
}
