package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// judge checks what has to hold after each round. It remembers what it saw.
type judge struct {
	*scene
	positions map[string]uint64 // by sink
	changes   map[changed]int   // how many changes of a setting were made
	puts      int64
	key       string // the trail's
}

func newJudge(s *scene) *judge {
	return &judge{scene: s, positions: map[string]uint64{}, changes: map[changed]int{}}
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
	}
	return err
}

func settingOf(c workspacesim.Change) changed {
	return changed{c.Project, c.Environment, c.Resource}
}

// check returns once everything has settled, with what is wrong.
func (j *judge) check(ctx context.Context) (wrong []string) {
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
	for _, r := range j.relays {
		say(r.endedBadly())
	}
	return wrong
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
func (j *judge) forward(status *app.ClusterStatus) error {
	for _, job := range status.Jobs {
		p := job.Position
		switch {
		case p == nil:
		case p.Unknown != "":
			return fmt.Errorf("the position of %s: %s", p.Sink, p.Unknown)
		case p.Acknowledged < j.positions[p.Sink]:
			return fmt.Errorf("the position of %s went back from %d to %d", p.Sink, j.positions[p.Sink], p.Acknowledged)
		default:
			j.positions[p.Sink] = p.Acknowledged
		}
	}
	return nil
}

// entered waits until each change of a setting has its entry at both sinks, and checks that
// none has two.
func (j *judge) entered(ctx context.Context) error {
	for _, sink := range sinkNames {
		for setting, made := range j.changes {
			err := j.until(ctx, fmt.Sprintf("the change of %v is at %s", setting, sink), func() bool { return j.sinks[sink].entries(setting) >= made })
			if err != nil {
				return err
			}
			if n := j.sinks[sink].entries(setting); n > made {
				return fmt.Errorf("TWICE in the trail: %v changed %d times, and %s has %d entries", setting, made, sink, n)
			}
		}
	}
	return nil
}

// verified has a relay's trail verified by the command.
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
			return fmt.Errorf("%s signs the trail with %q, and others with %q", r.name, all.Trail.PublicKey, j.key)
		}
		token, err := os.ReadFile(r.dataDir() + "/admin.token")
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, j.binary, "trail", "verify", "--url", "http://"+r.admin+"/tlog/", "--key", j.key)
		cmd.Env = append(os.Environ(), "AUDITRELAY_TLOG_TOKEN="+strings.TrimSpace(string(token)))
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the trail of %s does not verify (%w): %s", r.name, err, strings.TrimSpace(string(said)))
		}
		return nil
	}
	return errors.New("no relay writes the trail, so none was verified")
}

// fightsFrom is how many PUTs of one environment's streaming config in a round are a fight.
const fightsFrom = 4

func (j *judge) fights() error {
	now := j.scene.puts.Load()
	n := now - j.puts
	j.puts = now
	if most := int64(fightsFrom * len(j.workspace.Environments())); n >= most {
		return fmt.Errorf("%d PUTs of streaming configs in one round: the relays fight", n)
	}
	return nil
}
