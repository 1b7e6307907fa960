package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// takeoverShards is over how many streams the events are spread: each has a transactional id.
const takeoverShards = 4

// startKafkaTakeover has two relays deliver to one topic. A third one takes the pushes, and has
// control. So whatever comes twice was delivered twice, and not pushed again to a relay that did
// not know the event yet.
func startKafkaTakeover(ctx context.Context, s *session) (*place, error) {
	cluster, err := s.cluster(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.oncePlace(ctx, "takeover", target{name: "kafka, exactly once", sink: "kafka-takeover", once: true})
	if err != nil {
		return nil, err
	}
	p.journal = func(tag string) string {
		return fmt.Sprintf("journal: {url: %q, replicas: 3, shards: %d, max_bytes: 1GiB, stream_prefix: %s}\n", cluster.URL, takeoverShards, strings.ToUpper(tag))
	}
	p.ordeal = &ordeal{name: "taken over", times: s.takeovers, run: takeTurns, rivals: true}
	return p, nil
}

// rival is one of two relays that take over from each other.
type rival struct {
	*rig.Relay
	config         string
	log            string // its file
	frozen, killed int    // how often
}

// startRivals starts the two.
func (p *playing) startRivals(ctx context.Context) error {
	for _, name := range []string{"a", "b"} {
		dir := p.folder("relay-" + p.tag + name)
		r, err := rig.NewRelay(ctx, p.binary, dir)
		if err != nil {
			return err
		}
		one := &rival{Relay: r, log: filepath.Join(dir, "relay.log")}
		one.config = fmt.Sprintf("data_dir: %q\n", r.DataDir()) + p.workspace.Config(r.Ingest, r.Admin) + p.journalSection() + p.sinkSections()
		p.rivals = append(p.rivals, one)
		if err := p.startRival(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

func (p *playing) startRival(ctx context.Context, r *rival) error {
	return r.Start(ctx, r.config, starting, p.workspace.Env())
}

// takeTurns kills or freezes one of the rivals that delivers, at a random moment, until the other
// does all of its work. A frozen one then goes on with what it was doing.
func takeTurns(ctx context.Context, p *playing) error {
	if err := p.startRivals(ctx); err != nil {
		return err
	}
	before, err := p.holders(ctx)
	if err != nil {
		return err
	}
	for i := range p.kills {
		if err := p.takeOver(ctx); err != nil {
			return fmt.Errorf("after %d takeovers: %w", i, err)
		}
		if i%10 == 9 {
			p.say("  taken over %d times", i+1)
			p.progress()
		}
	}
	now, err := p.holders(ctx)
	if err != nil {
		return err
	}
	epochs := uint64(0)
	for job := range now {
		epochs += now[job].Epoch - before[job].Epoch
	}
	killed, frozen, fenced := 0, 0, 0
	for _, r := range p.rivals {
		killed, frozen, fenced = killed+r.killed, frozen+r.frozen, fenced+r.fenced()
	}
	p.remarks[p.places[0]] = append(p.remarks[p.places[0]], fmt.Sprintf(
		"%d times killed, %d times frozen; %d new holders in %d shards; the brokers refused a late transaction %d times", killed, frozen, epochs, takeoverShards, fenced))
	return nil
}

// fenced is how often the brokers have refused what the relay tried after the other had taken over.
func (r *rival) fenced() int {
	text, _ := os.ReadFile(r.log) // it was written to by the relay's start
	return strings.Count(string(text), "Invalid Producer Epoch") + strings.Count(string(text), "Producer Fenced")
}

// A relay that is gone is declared dead after 3.5 s. What is left is for a busy machine.
const takingOver = 2 * time.Minute

// takeOver has one rival take over from the other.
func (p *playing) takeOver(ctx context.Context) error {
	victim, other, err := p.whoDelivers(ctx)
	if err != nil {
		return err
	}
	if err := retry.Sleep(ctx, rand.N(time.Second)); err != nil {
		return err
	}
	freeze := rand.IntN(2) == 0
	if freeze {
		err = syscall.Kill(-victim.Process().PID(), syscall.SIGSTOP)
	} else {
		victim.Process().Kill()
	}
	if err != nil {
		return err
	}
	if err := rig.Until(ctx, takingOver, "the other relay delivers", func() bool { return p.doesAll(ctx, other) }, other.Process()); err != nil {
		return err
	}
	if !freeze {
		victim.killed++
		return p.startRival(ctx, victim)
	}
	victim.frozen++
	// The later it wakes, the more has the other delivered since.
	if err := retry.Sleep(ctx, rand.N(2*time.Second)); err != nil {
		return err
	}
	return syscall.Kill(-victim.Process().PID(), syscall.SIGCONT)
}

// whoDelivers waits until a rival does some of the sink's jobs while the other takes part as well,
// and draws it.
func (p *playing) whoDelivers(ctx context.Context) (victim, other *rival, err error) {
	order := rand.Perm(len(p.rivals))
	victim, other = p.rivals[order[0]], p.rivals[order[1]]
	err = rig.Until(ctx, takingOver, "a relay delivers, and the other takes part", func() bool {
		victim, other = other, victim
		for _, r := range p.rivals {
			status, err := r.cluster(ctx)
			if err != nil || !slices.ContainsFunc(status.Relays, func(relay lease.Relay) bool { return relay.Name == status.This }) {
				return false
			}
		}
		status, err := victim.cluster(ctx)
		return err == nil && len(sinkJobs(&status, status.This)) > 0
	}, victim.Process(), other.Process(), p.relay.Process())
	return victim, other, err
}

// doesAll reports whether a rival does the sink's job in each shard.
func (p *playing) doesAll(ctx context.Context, r *rival) bool {
	status, err := r.cluster(ctx)
	return err == nil && len(sinkJobs(&status, status.This)) == takeoverShards
}

// holders are the sink's jobs by name.
func (p *playing) holders(ctx context.Context) (jobs map[string]app.JobStatus, err error) {
	status, err := p.rivals[0].cluster(ctx)
	return sinkJobs(&status, ""), err
}

// sinkJobs are the jobs of the sink that a relay does; those of all without one.
func sinkJobs(s *app.ClusterStatus, relay string) map[string]app.JobStatus {
	jobs := map[string]app.JobStatus{}
	for _, job := range s.Jobs {
		if strings.HasPrefix(job.Name, "sink/") && (relay == "" || job.Holder == relay) {
			jobs[job.Name] = job
		}
	}
	return jobs
}

// cluster asks the relay who does which job.
func (r *rival) cluster(ctx context.Context) (app.ClusterStatus, error) {
	_, text, err := r.Ask(ctx, "/status")
	var all struct{ Cluster app.ClusterStatus }
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	return all.Cluster, err
}
