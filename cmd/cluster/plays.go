package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// act is one kind of fault.
type act struct {
	name, about string
	run         func(ctx context.Context, r *round) error
}

// plays are all kinds of faults.
func plays() []act {
	return []act{
		{"kill", "kill -9 of a relay with a job", killHolder},
		{"killany", "kill -9 of any relay", killAny},
		{"server", "kill -9 of a NATS server, mostly of the one that leads the table", killServer},
		{"cut", "a relay with a job is cut off from the servers", cutHolder},
		{"oneway", "the same in one direction only", cutOneWay},
		{"isolate", "a relay with a job is cut off from everybody", isolateHolder},
		{"split", "a NATS server is cut off from the other two, in one direction or both", splitServer},
		{"slow", "200 ms and 5 % loss on all ways", slowNetwork},
		{"freeze", "SIGSTOP of a relay with a job for 30 s, with a delivery of each of its sinks under way", freezeHolder},
		{clockPlay, "a relay whose clock is an hour off does all jobs, its clock is set, and it is frozen with another hour off", wrongClock},
		{"upgrade", "SIGTERM and restart of one relay after the other", upgrade},
		{"resize", "from one relay to three, and to two", resize},
		{"reshard", "another number of shards, with a relay killed", reshard},
		{"elect", "kill -9 of the server that leads one shard, and nothing else: the environments of others are taken meanwhile", elect},
		{"several", "a slow network, while a server and a relay with a job are killed", several},
	}
}

func playNames() string {
	var names []string
	for _, p := range plays() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// choose returns the plays with the names, or all.
func choose(names []string) (chosen []act, err error) {
	all := plays()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(p act) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--only: there is no play %q, see --help", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// round is one play under way.
type round struct {
	*scene
	rng     *rand.Rand
	change  func() error // changes a setting
	moves   []move
	zombies []victim // relays that others have replaced while they were frozen or cut off
	notes   []string
}

// move is a job that another relay took over.
type move struct {
	after string // what happened to the one before
	took  time.Duration
}

// between draws a time.
func (r *round) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

func (r *round) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func killHolder(ctx context.Context, r *round) error {
	v, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.note("%s", v)
	since := time.Now()
	v.kill()
	return r.movesFrom(ctx, v, "kill", since)
}

func killAny(ctx context.Context, r *round) error {
	victim := r.relays[r.rng.IntN(len(r.relays))]
	r.note("%s", victim.name)
	victim.kill()
	return retry.Sleep(ctx, r.between(0, 2*time.Second)) // often it is back before others take its jobs
}

// tableStream has the epochs, the heartbeats and the positions.
const tableStream = "AUDITRELAY_TABLE"

// someServer is mostly the one that leads the table.
func (r *round) someServer(ctx context.Context) int {
	if i, err := r.servers.leader(ctx, tableStream); err == nil && r.rng.IntN(4) > 0 {
		return i
	}
	return r.rng.IntN(servers)
}

func killServer(ctx context.Context, r *round) error {
	i := r.someServer(ctx)
	r.note("%s", serverName(i))
	r.servers.Kill(i)
	if err := retry.Sleep(ctx, r.between(2*time.Second, 12*time.Second)); err != nil {
		return err
	}
	return r.servers.Restart(ctx, i)
}

// cutOff cuts one machine off from others: what it sends, what they send, or both.
func (r *round) cutOff(m machine, others []machine, sends, hears bool) {
	for _, other := range others {
		if sends {
			r.network.set(m, other, fault{cut: true})
		}
		if hears {
			r.network.set(other, m, fault{cut: true})
		}
	}
}

// allServers are the machines of the servers.
func allServers() (all []machine) {
	for i := range servers {
		all = append(all, serverOf(i))
	}
	return all
}

// machineOf is a relay's.
func (r *round) machineOf(relay *relayNode) machine {
	return relayOf(slices.Index(r.relays, relay))
}

func cutHolder(ctx context.Context, r *round) error {
	return r.cutHolder(ctx, allServers(), true, true)
}

func cutOneWay(ctx context.Context, r *round) error {
	sends := r.rng.IntN(2) == 0
	r.note("%s", map[bool]string{true: "it is not heard", false: "it hears nothing"}[sends])
	return r.cutHolder(ctx, allServers(), sends, !sends)
}

func isolateHolder(ctx context.Context, r *round) error {
	return r.cutHolder(ctx, append(allServers(), here), true, true)
}

// cutHolder cuts a relay off until others do its jobs, and some seconds more.
func (r *round) cutHolder(ctx context.Context, from []machine, sends, hears bool) error {
	v, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.note("%s", v)
	since := time.Now()
	r.cutOff(r.machineOf(v.relayNode), from, sends, hears)
	r.zombies = append(r.zombies, v)
	if err := r.movesFrom(ctx, v, "cut", since); err != nil {
		return err
	}
	return retry.Sleep(ctx, r.between(0, 2*time.Second))
}

func splitServer(ctx context.Context, r *round) error {
	i, both, sends := r.someServer(ctx), r.rng.IntN(2) == 0, r.rng.IntN(2) == 0
	r.note("%s, both ways: %t", serverName(i), both)
	var others []machine
	for _, m := range allServers() {
		if m != serverOf(i) {
			others = append(others, m)
		}
	}
	r.cutOff(serverOf(i), others, both || sends, both || !sends)
	return retry.Sleep(ctx, r.between(5*time.Second, 15*time.Second))
}

func slowNetwork(ctx context.Context, r *round) error {
	r.slow()
	return retry.Sleep(ctx, r.between(10*time.Second, 15*time.Second))
}

func (r *round) slow() {
	for from := range machines {
		for to := range machines {
			r.network.set(from, to, fault{delay: 200 * time.Millisecond, loss: 0.05})
		}
	}
}

// soon is how long something may take that follows at once.
const soon = 5 * time.Second

// tried waits until the servers have refused a write of a relay that goes on after others have
// replaced it.
func (r *round) tried(ctx context.Context, v victim) attempts {
	_ = rig.Until(ctx, soon, "the relay writes something", func() bool { return r.fence.attempts(v) != attempts{} }) // what it has not tried is counted
	return r.fence.attempts(v)
}

// frozenFor is how long a relay is frozen.
const frozenFor = 30 * time.Second

func freezeHolder(ctx context.Context, r *round) error {
	v, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.note("%s", v)
	return r.freeze(ctx, v, frozenFor)
}

// freeze freezes a relay until others do its jobs, and for some time in any case. Each of its
// sinks has a delivery under way, whose answer it reads as it goes on: then it has a position to
// move.
func (r *round) freeze(ctx context.Context, v victim, lasts time.Duration) error {
	for _, sink := range v.sinks {
		r.sinks[sink].hold(v.name)
		defer r.sinks[sink].release()
	}
	v.sinks = slices.DeleteFunc(slices.Clone(v.sinks), func(sink string) bool {
		return rig.Until(ctx, soon, "a delivery to "+sink+" is under way", r.sinks[sink].holds) != nil // it was given away meanwhile
	})
	since := time.Now()
	if err := v.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = v.signal(syscall.SIGCONT) }()
	for _, sink := range v.sinks {
		r.sinks[sink].release()
	}
	r.zombies = append(r.zombies, v)
	if err := r.movesFrom(ctx, v, "freeze", since); err != nil {
		return err
	}
	return retry.Sleep(ctx, time.Until(since.Add(lasts)))
}

func upgrade(ctx context.Context, r *round) error {
	for _, relay := range r.relays {
		if err := r.leave(ctx, relay); err != nil {
			return err
		}
		if err := r.startAll(ctx, relay); err != nil {
			return err
		}
	}
	return nil
}

// leave stops a relay, whose jobs others do even before it has ended.
func (r *round) leave(ctx context.Context, relay *relayNode) error {
	v := r.victimOf(ctx, relay)
	since, stopped := time.Now(), make(chan error, 1)
	go func() { stopped <- relay.stop() }()
	err := r.movesFrom(ctx, v, "leave", since)
	return errors.Join(err, <-stopped)
}

// startAll starts relays, and waits until they take part.
func (r *round) startAll(ctx context.Context, relays ...*relayNode) error {
	for _, relay := range relays {
		if err := relay.start(); err != nil {
			return err
		}
	}
	for _, relay := range relays {
		if err := r.joined(ctx, relay); err != nil {
			return err
		}
	}
	return nil
}

// joined waits until a relay takes part.
func (r *round) joined(ctx context.Context, relay *relayNode) error {
	return r.until(ctx, relay.name+" takes part", func() bool {
		status, err := relay.status(ctx)
		return err == nil && status.This != "" && status.This == relay.member()
	})
}

func resize(ctx context.Context, r *round) error {
	var order []*relayNode
	for _, i := range r.rng.Perm(len(r.relays)) {
		order = append(order, r.relays[i])
	}
	for _, relay := range order[1:] {
		if err := r.leave(ctx, relay); err != nil {
			return err
		}
	}
	if err := r.startAll(ctx, order[1:]...); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, r.between(time.Second, 3*time.Second)); err != nil { // jobs are spread meanwhile
		return err
	}
	return r.leave(ctx, order[0])
}

func several(ctx context.Context, r *round) error {
	v, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.slow()
	if err := retry.Sleep(ctx, r.between(0, 3*time.Second)); err != nil {
		return err
	}
	i := r.rng.IntN(servers)
	r.note("%s, %s", v, serverName(i))
	since := time.Now()
	v.kill()
	r.servers.Kill(i)
	err = retry.Sleep(ctx, r.between(5*time.Second, 15*time.Second))
	heal(r.network)
	return errors.Join(err, r.movesFrom(ctx, v, "several", since), r.servers.Restart(ctx, i))
}

// restore ends all faults: everybody runs, and reaches everybody.
func (r *round) restore(ctx context.Context) error {
	heal(r.network)
	for i := range servers {
		if len(r.servers.Alive()) == servers {
			break
		}
		_ = r.servers.Restart(ctx, i) // it fails for those that run
	}
	if alive := len(r.servers.Alive()); alive < servers {
		return fmt.Errorf("%d of %d servers run: %s", alive, servers, r.servers.Tails())
	}
	for _, relay := range r.relays {
		if err := relay.start(); err != nil {
			return err
		}
	}
	return nil
}
