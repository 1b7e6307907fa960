package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sinkOf is the sink of a job, which is followed by a number for all shards except the first.
func sinkOf(job string) (sink string, is bool) {
	sink, is = strings.CutPrefix(job, sinkJob)
	sink, _, _ = strings.Cut(sink, "/")
	return sink, is
}

// mostShards is how many shards the play goes up to.
const mostShards = 3

// reshard gives the relays another number of shards, one after the other. One of them is killed as
// soon as all have it.
func reshard(ctx context.Context, r *round) error {
	next := r.shards
	for next == r.shards {
		next = 1 + r.rng.IntN(mostShards)
	}
	if err := r.configure(ctx, next); err != nil {
		return err
	}
	killed := r.relays[r.rng.IntN(len(r.relays))]
	killed.kill()
	if err := r.startAll(ctx, killed); err != nil {
		return err
	}
	return r.isSpread(ctx)
}

// configure gives all relays another number of shards, one after the other.
func (r *round) configure(ctx context.Context, shards int) error {
	r.note("from %d to %d", r.shards, shards)
	r.shards = shards
	for _, relay := range r.relays {
		if err := r.leave(ctx, relay); err != nil {
			return err
		}
		if err := relay.shardsAre(shards); err != nil {
			return err
		}
		if err := r.startAll(ctx, relay); err != nil {
			return err
		}
	}
	return nil
}

// isSpread waits until the events are spread over the configured number of shards.
func (r *round) isSpread(ctx context.Context) error {
	return r.until(ctx, fmt.Sprintf("the events are spread over %d shards", r.shards), func() bool { return r.spreadOver(ctx, r.shards) })
}

// shardsAre writes another number of shards into the relay's configuration.
func (r *relayNode) shardsAre(n int) error {
	file := filepath.Join(r.dir, "relay.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(string(text), shardsField)
	_, after, _ = strings.Cut(after, ",")
	return os.WriteFile(file, fmt.Appendf(nil, "%s%s%d,%s", before, shardsField, n, after), 0o600)
}

// shardsField stands before the number of shards in the relays' configuration.
const shardsField = "shards: "

// spreadOver reports whether the table says that so many shards count, and all relays know it.
func (r *round) spreadOver(ctx context.Context, shards int) bool {
	var layout struct {
		Number       uint64
		Shards, Next int
	}
	stream, err := r.servers.client.JetStream().Stream(ctx, tableStream)
	if err != nil {
		return false
	}
	m, err := stream.GetLastMsgForSubject(ctx, tableStream+".key.shards")
	if err != nil {
		return false
	}
	// The head of a value is binary, and may have any byte.
	from := bytes.Index(m.Data, []byte(`{"number"`))
	if from < 0 || json.Unmarshal(m.Data[from:], &layout) != nil || layout.Shards != shards || layout.Next > 0 {
		return false
	}
	status, err := r.standing(ctx)
	for i := range status.Relays {
		var said struct{ Layout uint64 }
		if json.Unmarshal([]byte(status.Relays[i].Says), &said) != nil || said.Layout < layout.Number {
			return false
		}
	}
	return err == nil
}
