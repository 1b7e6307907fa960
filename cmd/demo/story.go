package main

import (
	"context"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// phishing is the host that a template of mail leads to in the story.
const phishing = "acme-login.example.net"

// scene is a thing that happens in the workspace, as a person finds it in the trail.
type scene struct {
	after time.Duration
	what  string
	play  func() error
}

// story is what there is to explore.
func (s *stage) story() []scene {
	first, last := s.environments[0], s.environments[len(s.environments)-1]
	return []scene{
		{4 * time.Second, "the password policy of " + name(first) + " is weakened", func() error {
			_, err := s.sim.WeakenPasswords(first.Project, first.Environment)
			return err
		}},
		{8 * time.Second, "a template of mail of " + last.Project + " gets a link to " + phishing, func() error {
			_, err := s.sim.PlantLink(last.Project, phishing)
			return err
		}},
		{12 * time.Second, "the event log of " + name(last) + " is switched off", func() error {
			return s.sim.SetStreamingStatus(last.Project, last.Environment, "DISABLED")
		}},
	}
}

func name(e workspacesim.Environment) string { return e.Project + "/" + e.Environment }

// plot tells the story beforehand.
func (s *stage) plot() string {
	text := "Then:\n"
	for _, scene := range s.story() {
		text += fmt.Sprintf("  after %2.0f s      %s\n", scene.after.Seconds(), scene.what)
	}
	return text
}

// play plays the story, and then changes settings one after the other, until ctx ends. It goes
// through the resources in turn, so that none is changed again before the relay looks.
func (s *stage) play(ctx context.Context) {
	begun := time.Now()
	for _, scene := range s.story() {
		if retry.Sleep(ctx, scene.after-time.Since(begun)) != nil {
			return
		}
		s.note(scene.play())
	}
	if s.changeEvery <= 0 {
		return
	}
	resources := workspacesim.Resources()
	for i := 0; retry.Sleep(ctx, s.changeEvery) == nil; i++ {
		e := s.environments[i/len(resources)%len(s.environments)]
		_, err := s.sim.ChangeSetting(e.Project, e.Environment, resources[i%len(resources)])
		s.note(err)
	}
}

func (s *stage) note(err error) {
	if err != nil {
		s.changesFailed.Add(1)
	}
}
