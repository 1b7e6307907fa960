package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// judge checks what has to hold after each round. It remembers what it saw, and what it has told: a
// finding counts against the round after which it was found, and against no later one.
type judge struct {
	*scene
	positions map[string]uint64 // by job
	changes   map[changed]int   // how many changes of a setting were made
	beyond    map[entriesAt]int // how many entries beyond one for each change it has told of
	trespass  int               // how many moved positions it has told of
	puts      int64
	key       string // the trail's
	newest    string // the file of the checkpoint that was served last
	began     time.Time
	clocks    map[proof.Finding]bool // whether what the trail lacks is a wrong clock's doing
	tally     tally
}

// entriesAt are the entries about a setting at a sink.
type entriesAt struct {
	changed
	sink string
}

// tally is what the checks have counted.
type tally struct {
	verified, forks int // of the trail
	clocks          int // findings in it that name the time of a wrong clock, as they should
	changes         int // of settings
	puts, fights    int // most PUTs in a round, and rounds with too many
	zombies, silent int // relays that were replaced while they could not know it, and those that tried nothing
	attempts        attempts
}

func newJudge(s *scene) *judge {
	return &judge{
		scene: s, positions: map[string]uint64{}, changes: map[changed]int{}, beyond: map[entriesAt]int{},
		began: time.Now(), clocks: map[proof.Finding]bool{},
	}
}

// looked waits until the relays have looked at each setting: what was before is no change.
func (j *judge) looked(ctx context.Context) error {
	for _, e := range j.workspace.Environments() {
		for _, resource := range workspacesim.Resources() {
			ofEnvironment, ofProject := changed{e.Project, e.Environment, resource}, changed{e.Project, "", resource}
			err := j.until(ctx, fmt.Sprintf("the relays have looked at %v", ofEnvironment), func() bool {
				hook := j.sinks[sinkNames[0]]
				return hook.knows(ofEnvironment) || hook.knows(ofProject)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// change changes a setting, as a person does.
func (j *judge) change() error {
	c, err := j.workspace.ChangeSomething()
	if err == nil {
		j.changes[settingOf(c)]++
		j.tally.changes++
	}
	return err
}

func settingOf(c workspacesim.Change) changed {
	return changed{c.Project, c.Environment, c.Resource}
}

// check returns once everything has settled after a round, with what is wrong.
func (j *judge) check(ctx context.Context, r *round) (wrong []string) {
	say := func(err error) {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	say(j.arrived(ctx))
	status, err := j.held(ctx)
	say(err)
	say(j.forward(&status))
	say(j.entered(ctx))
	say(j.verified(ctx))
	say(j.fights())
	say(j.fenced(ctx, r))
	for _, r := range j.relays {
		say(r.endedBadly())
	}
	return wrong
}

// fenced counts what the relays have tried that others had replaced, and checks that it was refused.
func (j *judge) fenced(ctx context.Context, r *round) error {
	for _, zombie := range r.zombies {
		a := r.tried(ctx, zombie)
		j.tally.zombies++
		if a == (attempts{}) {
			j.tally.silent++
			r.note("%s tried nothing", zombie.name)
		}
		j.tally.attempts.beats += a.beats
		j.tally.attempts.positions += a.positions
		j.tally.attempts.others += a.others
	}
	_, all := j.fence.sum()
	fresh := all[j.trespass:]
	j.trespass = len(all)
	if len(fresh) > 0 {
		return fmt.Errorf("MOVED by a relay that others had replaced: %s", strings.Join(fresh, "; "))
	}
	return nil
}

// arrived waits until both sinks have all that was acknowledged so far.
func (j *judge) arrived(ctx context.Context) error {
	ledgers, _ := j.load.acknowledged()
	for _, name := range sinkNames {
		left := func() int64 { return j.sinks[name].missing(ledgers) }
		if err := j.while(ctx, "everything acknowledged is at "+name, left, func() bool { return left() == 0 }); err != nil {
			return fmt.Errorf("LOST: %w", err)
		}
	}
	return nil
}

// held waits until each relay takes part, and each job has one of them.
func (j *judge) held(ctx context.Context) (status app.ClusterStatus, err error) {
	last := errors.New("not asked yet")
	err = j.until(ctx, "each job has a living relay", func() bool {
		if status, last = j.standing(ctx); last != nil {
			return false
		}
		alive := map[string]bool{}
		for _, r := range status.Relays {
			alive[r.Name] = true
		}
		for _, r := range j.relays {
			if r.running() && !alive[r.member()] {
				last = fmt.Errorf("%s does not take part", r.name)
				return false
			}
		}
		for _, job := range status.Jobs {
			if job.Epoch > 0 && (!alive[job.Holder] || j.relayOfMember(job.Holder) == nil) {
				last = fmt.Errorf("the job %s is %q's, which is not alive", job.Name, job.Holder)
				return false
			}
		}
		return len(status.Jobs) > 0
	})
	if err != nil {
		return status, errors.Join(err, last)
	}
	return status, nil
}

// forward checks that no sink's position has gone back, and that each is believed.
func (j *judge) forward(status *app.ClusterStatus) (err error) {
	for _, job := range status.Jobs {
		p := job.Position
		if p == nil {
			continue
		}
		if p.Unknown != "" {
			err = errors.Join(err, fmt.Errorf("the position of %s: %s", job.Name, p.Unknown))
			continue
		}
		if was := j.positions[job.Name]; p.Acknowledged < was {
			err = errors.Join(err, fmt.Errorf("the position of %s went back from %d to %d", job.Name, was, p.Acknowledged))
		}
		j.positions[job.Name] = p.Acknowledged
	}
	return err
}

// entered waits until each change of a setting has its entry at both sinks, and checks that
// none has two.
func (j *judge) entered(ctx context.Context) (twice error) {
	for _, sink := range sinkNames {
		for setting, made := range j.changes {
			err := j.until(ctx, fmt.Sprintf("the change of %v is at %s", setting, sink), func() bool { return j.sinks[sink].entries(setting) >= made })
			if err != nil {
				return err
			}
			at, n := entriesAt{setting, sink}, j.sinks[sink].entries(setting)
			if n-made > j.beyond[at] {
				twice = errors.Join(twice, fmt.Errorf("TWICE in the trail: %v changed %d times, and %s has %d entries", setting, made, sink, n))
			}
			j.beyond[at] = max(j.beyond[at], n-made)
		}
	}
	return twice
}

// doubled counts the entries about changes of settings that the trail has beyond one for each.
func (j *judge) doubled() (n int) {
	for setting, made := range j.changes {
		n += max(0, j.sinks[sinkNames[0]].entries(setting)-made)
	}
	return n
}

// verified has a relay's trail verified by the command, together with the checkpoint that was
// served after the round before: a trail with a fork holds only one of the two.
func (j *judge) verified(ctx context.Context) error {
	for _, r := range j.relays {
		var all struct {
			Trail struct {
				PublicKey string `json:"public_key"`
			}
		}
		if !r.running() || r.ask(ctx, "/status", &all) != nil || all.Trail.PublicKey == "" {
			continue // it does not write the trail
		}
		if j.key == "" {
			j.key = all.Trail.PublicKey
		}
		if all.Trail.PublicKey != j.key {
			j.tally.forks++
			return fmt.Errorf("FORK: %s signs the trail with %q, and others with %q", r.name, all.Trail.PublicKey, j.key)
		}
		return j.verify(ctx, r)
	}
	return errors.New("no relay writes the trail, so none was verified")
}

// fightsFrom is how many PUTs of one environment's streaming config in a round are a fight.
const fightsFrom = 4

func (j *judge) fights() error {
	now := j.scene.puts.Load()
	n := now - j.puts
	j.puts = now
	j.tally.puts = max(j.tally.puts, int(n))
	if most := int64(fightsFrom * len(j.workspace.Environments())); n >= most {
		j.tally.fights++
		return fmt.Errorf("FIGHT: %d PUTs of streaming configs in one round", n)
	}
	return nil
}
