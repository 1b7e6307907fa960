package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// patience bounds one wait for one step: for an entry, or for a look.
const patience = 5 * time.Minute

// entry is a row of `auditrelay trail list --output json`.
type entry struct {
	Index     int64
	Type      string
	Setting   string
	Severity  string
	Direction string
	Cause     string
	Actor     string
	Summary   string
}

// row is the comparable part of an entry.
func (e entry) row() string {
	return strings.Join([]string{e.Type, e.Setting, e.Direction, e.Severity, e.Cause, e.Summary}, " | ")
}

// opening waits for the first looks.
func (s *stage) opening(ctx context.Context) error {
	baselines := 0
	return rig.Until(ctx, patience, "the first looks are in the trail", func() bool {
		all := s.entries(ctx, 0)
		baselines = 0
		for _, e := range all {
			if strings.HasSuffix(e.Type, ".baseline") {
				baselines++
			}
			s.seen = e.Index + 1
		}
		return baselines == len(settings)+2
	}, s.relay.Process())
}

func (s *stage) changes(ctx context.Context) error {
	fmt.Printf("%d known changes, the relay killed after one and before another\n", len(known))
	var live, killed time.Duration // the slowest
	for i, c := range known {
		since, err := s.change(ctx, i)
		if err != nil {
			return err
		}
		kind := "settings.changed"
		switch {
		case c.setting == streaming && strings.Contains(c.now, "ACTIVE"), c.setting == streaming && strings.Contains(c.now, "DISABLED"):
			kind = "streaming.status_changed"
		case c.setting == streaming:
			kind = "streaming.changed"
		}
		s.expect(ctx, entry{Type: kind, Setting: c.setting, Severity: c.severity, Direction: c.direction, Cause: "outside", Summary: c.sentence})
		if err := rig.Until(ctx, patience, "the change is at the sink", func() bool { return s.delivered(c.sentence) || s.wrong > 0 }, s.relay.Process()); err != nil {
			return err
		}
		if i == killedAfter || i == killedBefore {
			killed = max(killed, time.Since(since))
		} else {
			live = max(live, time.Since(since))
		}
	}
	s.inTime("a change", live)
	s.inTime("the restart after a kill -9", killed)
	return nil
}

const (
	// killedAfter is the change just before a kill -9.
	killedAfter = 20
	// killedBefore is the one while the relay is down.
	killedBefore = 30
	// soon is the time from a change, or from the restart after a kill, to the sink.
	soon = lookEvery + 2*time.Second
)

// change makes known change i, possibly before or after a kill. It counts from since: the
// change, or the restart.
func (s *stage) change(ctx context.Context, i int) (since time.Time, err error) {
	if i == killedBefore {
		s.relay.Process().Kill()
	}
	since = time.Now()
	if err := s.wire.replace(known[i].setting, known[i].old, known[i].now); err != nil {
		return since, err
	}
	if i == killedAfter {
		s.relay.Process().Kill()
	}
	if i == killedAfter || i == killedBefore {
		since = time.Now()
		err = s.start(ctx)
	}
	return since, err
}

// inTime prints how long the slowest change took to the sink. Above the limit it is a
// difference.
func (s *stage) inTime(from string, slowest time.Duration) {
	s.rows++
	fmt.Printf("from %s to the sink: %.1f s at most; the limit is %.1f s\n", from, slowest.Seconds(), soon.Seconds())
	if slowest > soon {
		s.wrong++
		fmt.Printf("TOO LATE\n")
	}
}

// delivered reports whether a sentence is in the sink's file.
func (s *stage) delivered(sentence string) bool {
	text, err := os.ReadFile(s.file)
	quoted, _ := json.Marshal(sentence) // a text
	return err == nil && strings.Contains(string(text), `"summary":`+string(quoted))
}

// reorderings waits for two whole looks after each. Entries of them would come before the
// next row's.
func (s *stage) reorderings(ctx context.Context) error {
	fmt.Printf("\n%d reorderings and other spellings\n", len(same))
	for _, c := range same {
		if err := s.wire.replace(c.setting, c.old, c.now); err != nil {
			return err
		}
		was := s.wire.looked(c.setting)
		if err := rig.Until(ctx, patience, "the next looks", func() bool { return s.wire.looked(c.setting) >= was+3 }, s.relay.Process()); err != nil {
			return err
		}
		s.expect(ctx)
	}
	return nil
}

func (s *stage) actions(ctx context.Context) error {
	fmt.Println("\n6 guarded actions, 2 of them killed between intent and outcome")
	env := s.wire.sim.Environments()[0]
	name := env.Project + "/" + env.Environment
	for _, a := range []struct {
		args    []string
		follows string // the changing setting
	}{
		{[]string{"project", "rename", env.Project, "Mine"}, "project"},
		{[]string{"templates", "default", "unset", env.Project, "LOGIN"}, "default_email_templates"},
		{[]string{"secret", "delete", name, env.Secrets[0]}, ""},
		{[]string{"public-token", "delete", name, env.PublicTokens[0]}, ""},
	} {
		if out, err := s.command(ctx, append([]string{"workspace"}, append(a.args, "--yes", "--reason", "CHG-1")...)...); err != nil {
			return fmt.Errorf("%v: %w: %s", a.args, err, out)
		}
		s.expectAction(ctx, "done", a.follows)
	}
	for _, args := range [][]string{
		{"redirect-urls", "set-types", name, env.RedirectURLs[0], "--types", "LOGIN"}, {"secret", "delete", name, env.Secrets[1]},
	} {
		if err := s.killed(ctx, args); err != nil {
			return err
		}
		s.expectAction(ctx, "unknown", "")
	}
	return nil
}

// killed has an action wait at the API, kills the relay, and starts it again.
func (s *stage) killed(ctx context.Context, args []string) error {
	was := s.wire.hold(true)
	acting := make(chan error, 1)
	go func() {
		_, err := s.command(ctx, append([]string{"workspace"}, append(args, "--yes", "--reason", "CHG-2")...)...)
		acting <- err
	}()
	if err := rig.Until(ctx, patience, "the action is at the API", func() bool { writes, _ := s.wire.counts(); return writes > was }, s.relay.Process()); err != nil {
		return err
	}
	s.relay.Process().Kill()
	if err := <-acting; err == nil {
		return fmt.Errorf("%v says it is done, but the relay was killed", args)
	}
	s.wire.hold(false)
	return s.start(ctx)
}

func (s *stage) outage(ctx context.Context) error {
	return s.trouble(ctx, "an outage", outage, "outage")
}

func (s *stage) revokedKey(ctx context.Context) error {
	return s.trouble(ctx, "a revoked key", revoked, "unauthorized")
}

// trouble makes one entry when it begins and one when it ends, however long it lasts.
func (s *stage) trouble(ctx context.Context, what string, f fault, cause string) error {
	fmt.Printf("\n%s\n", what)
	s.wire.set(f)
	if err := rig.Until(ctx, patience, "requests fail", func() bool { _, refused := s.wire.counts(); return refused >= 3 }, s.relay.Process()); err != nil {
		return err
	}
	s.expectTypes(ctx, cause, "workspace.unreachable")
	s.wire.set(noFault)
	s.expectTypes(ctx, cause, "workspace.reachable")
	return nil
}

func (s *stage) removedEnvironment(ctx context.Context) error {
	fmt.Println("\na removed environment")
	s.wire.set(removed)
	s.expectTypes(ctx, "outside", "environment.gone")
	s.wire.set(noFault)
	s.expectTypes(ctx, "outside", "environment.back")
	return nil
}

// atTheSink looks for every sentence in the sink's file.
func (s *stage) atTheSink(ctx context.Context) error {
	missing := s.sentences
	err := rig.Until(ctx, patience, "every sentence is at the sink", func() bool {
		missing = slices.DeleteFunc(slices.Clone(missing), s.delivered)
		return len(missing) == 0
	}, s.relay.Process())
	for _, sentence := range missing {
		s.wrong++
		fmt.Printf("NOT AT THE SINK %s\n", sentence)
	}
	if len(missing) > 0 {
		return nil // it is counted
	}
	fmt.Printf("\nat the sink: %d sentences, none missing\n", len(s.sentences))
	return err
}

// command runs the relay's command line.
func (s *stage) command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, s.binary, append(args, "--data-dir", s.relay.DataDir())...).CombinedOutput()
	return string(out), err
}
