package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// mostClicks bounds the clicks of a task.
const mostClicks = 3

// task is what a person comes for. It begins on the overview, logged in.
type task struct {
	name string
	play func(t *tab, s *stage) error
}

// tasks are all of them. A page that a task needs, and that the console does not have, fails it.
var tasks = []task{
	{"find who weakened what, and prove it", proveTheWeakening},
	{"check a .tlog-proof offline", checkOffline},
	{"find the silent environment", findSilent},
	{"find why a sink is dead", findDead},
}

func playTasks(b *browser, s *stage, only string, r *report) error {
	r.say("%-44s %-8s %6s %8s", "task", "look", "clicks", "seconds")
	for _, one := range tasks {
		if !strings.Contains(one.name, only) {
			continue
		}
		for _, l := range []look{light, dark, phone} {
			clicks, took, err := b.play(s, one, l)
			r.say("%-44s %-8s %6d %8.2f", one.name, l.name, clicks, took.Seconds())
			if err != nil {
				r.fail("the task %q, %s: %v", one.name, l.name, err)
			} else if clicks > mostClicks {
				r.fail("the task %q, %s, takes %d clicks, more than %d", one.name, l.name, clicks, mostClicks)
			}
		}
	}
	return nil
}

func (b *browser) play(s *stage, one task, l look) (clicks int, took time.Duration, err error) {
	t, err := b.enter(s, l)
	if err != nil {
		return 0, 0, err
	}
	defer t.close()
	began := time.Now()
	err = one.play(t, s)
	return t.clicks, time.Since(began), err
}

// enter opens a tab on the overview, logged in by a link.
func (b *browser) enter(s *stage, l look) (*tab, error) {
	t, err := b.open(l)
	if err != nil {
		return nil, err
	}
	link, err := s.link(context.WithoutCancel(t.ctx))
	if err == nil {
		err = t.goTo(link)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// proven waits for the verdict of the page Prove.
func (t *tab) proven(result string) error {
	return t.until("the entry is proven", fmt.Sprintf(`document.querySelector("#%s .verdict.good")`, result))
}

func proveTheWeakening(t *tab, _ *stage) error {
	if err := t.click(`//main//a[contains(., "breach")]`); err != nil {
		return err
	}
	if err := t.says("no longer checked against breaches"); err != nil {
		return err
	}
	if err := t.click(`//a[starts-with(@href, "/prove?entry=")]`); err != nil {
		return err
	}
	return t.proven("entry-result")
}

func checkOffline(t *tab, s *stage) error {
	record, proof, err := s.prove(t.ctx, s.weakened)
	if err != nil {
		return err
	}
	if err := t.goTo(fmt.Sprintf("%s/prove?entry=%d", s.web, s.weakened)); err != nil { // it trusts nobody before
		return err
	}
	if err := t.proven("entry-result"); err != nil {
		return err
	}
	var asked int
	count := `performance.getEntriesByType("resource").length`
	if err := t.eval(count, &asked); err != nil {
		return err
	}
	if err := t.eval(fmt.Sprintf(`document.getElementById("pasted").value = %s, 0`, jsonText(record+"\n"+proof)), new(int)); err != nil {
		return err
	}
	if err := t.click(`//button[. = "Check them"]`); err != nil {
		return err
	}
	if err := t.proven("files-result"); err != nil {
		return err
	}
	var after int
	if err := t.eval(count, &after); err != nil {
		return err
	}
	if after != asked {
		return fmt.Errorf("the page has made %d requests to check a file offline", after-asked)
	}
	return nil
}

func findSilent(t *tab, s *stage) error {
	return t.says(s.silent.Environment)
}

func findDead(t *tab, _ *stage) error {
	return t.says("connection refused")
}
