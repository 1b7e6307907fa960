package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

const (
	// hostileLive is the page Live with hostile events alone.
	hostileLive = "/live?match=has(body.hostile)"
	// hostileID is an event's own id, which has no spaces.
	hostileID = "<script>alert(3)</script>"
	// hostileName is how long a name is, and hostileText an event's text: a longer line is refused.
	hostileName, hostileText = 1 << 20, 250_000
)

// attack has each who can send texts send one that is markup, turns its direction, and is long: an
// event, a role's name, a template and its name, and what a destination says when it refuses the event.
// It gives the pages that show them.
func (s *stage) attack(ctx context.Context) (paths []string, err error) {
	name := hostile + strings.Repeat("n", hostileName)
	s.api.edit(edit{"/rbac_policy", regexp.MustCompile(`"custom_roles": ?\[`), `"custom_roles":[{"role_id":"` + name + `","description":"","permissions":[]},`})
	s.api.edit(edit{"/email_templates", regexp.MustCompile(`"name": ?"`), `"name":"` + name})
	letter, err := s.hostileLetter(ctx)
	if err != nil {
		return nil, err
	}
	paths = []string{fmt.Sprintf("/sinks/letters/%d", letter), "/sinks/letters", "/sinks/history/picky", hostileLive + "&hold=yes"}
	for _, setting := range []string{"rbac_policy", "email_templates"} {
		var changed []timeline.Row
		err := rig.Until(ctx, 2*time.Minute, "the hostile names are in the trail", func() bool {
			changed = s.rows(ctx, timeline.Filter{Type: "settings.changed", Setting: setting, Text: "<script>"})
			return len(changed) > 0
		}, s.relay.Process())
		if err != nil {
			return nil, err
		}
		newest := changed[len(changed)-1]
		paths = append(paths, fmt.Sprintf("/changes/%d", newest.Index), "/changes?setting="+setting, fmt.Sprintf("/states?project=%s&environment=%s", newest.Project, newest.Environment))
	}
	return paths, nil
}

// hostileLetter is the number of the dead letter with the hostile event.
func (s *stage) hostileLetter(ctx context.Context) (number uint64, err error) {
	s.picky.status.Store(http.StatusBadRequest)
	defer s.picky.status.Store(http.StatusNoContent)
	if err := s.pushHostile(ctx); err != nil {
		return 0, err
	}
	return number, rig.Until(ctx, 2*time.Minute, "the hostile event is refused", func() bool {
		_ = s.client().Letters(ctx, console.ListLetters{Filter: deadletters.Filter{Sink: "picky", ID: hostileID}}, func(l *console.Letter) error { number = l.Sequence; return nil })
		return number > 0
	}, s.relay.Process())
}

// pushHostile pushes an event as long as one may be.
func (s *stage) pushHostile(ctx context.Context) error {
	line := fmt.Sprintf(`{"event_id":%q,"action":"LOGIN","status":"%s","hostile":true,"at":%d,"text":"%[2]s%[4]s"}`, hostileID, hostile, time.Now().UnixNano(), strings.Repeat("e", hostileText))
	return s.push(ctx, []pushes.Entry{{Time: time.Now().UnixNano(), Line: []byte(line)}})
}

// lookAtHostile looks at what is hostile: it must be text that stays within its bounds. The browser's
// ears hear dialogs, errors and requests to elsewhere.
func lookAtHostile(b *chrome, s *stage, axe string, o options, r *report) error {
	paths, err := s.attack(b.ctx)
	if err != nil {
		return err
	}
	r.say("\n%-64s %-10s %8s", "page with hostile texts", "look", "findings")
	for _, l := range []look{light, phone, plain} {
		t, err := b.enter(s, l)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := s.pushHostile(b.ctx); err != nil { // the newest events are shown
				return err
			}
			if err := t.goTo(s.web + path); err != nil {
				return err
			}
			r.say("%-64s %-10s %8d", path, l.name, t.inspect(path, l, axe, r))
			if err := t.harmless(); err != nil {
				r.fail("%s, %s: %v", path, l.name, err)
			}
			if err := t.keep(o, "hostile"+path, l); err != nil {
				r.fail("%s, %s: %v", path, l.name, err)
			}
		}
		if !l.plain {
			if err := t.followHostile(s); err != nil {
				r.fail("the hostile event in a live page, %s: %v", l.name, err)
			}
		}
		t.close()
	}
	return nil
}

// longestPage bounds a page with hostile texts, in characters.
const longestPage = 400_000

// harmless wants a hostile text to be shown as text, as a part where it is long, and nothing in the page
// to turn the direction of text.
func (t *tab) harmless() error {
	if err := t.until("the hostile text is shown as text", `/<script>alert\([23]\)<\/script>/.test(document.querySelector("main").innerText)`); err != nil {
		return err
	}
	var turned bool
	if err := t.eval(`/[\u202a-\u202e\u2066-\u2069]/.test(document.querySelector("main").textContent)`, &turned); err != nil {
		return err
	}
	var length int
	if err := t.eval(`document.documentElement.outerHTML.length`, &length); err != nil {
		return err
	}
	switch {
	case turned:
		return errors.New("a hostile text turns the direction of text")
	case length > longestPage:
		return fmt.Errorf("a page with a long text has %d characters, more than %d", length, longestPage)
	}
	return nil
}

// followHostile has hostile events come into a page that follows.
func (t *tab) followHostile(s *stage) error {
	defer s.keepPushing(t.ctx)()
	if err := t.goTo(s.web + hostileLive); err != nil {
		return err
	}
	newest := `document.querySelector("#sample article").innerText`
	if err := t.until("a hostile event is there", `window.first = `+newest); err != nil {
		return err
	}
	if err := t.until("another one comes", newest+` !== window.first`); err != nil {
		return err
	}
	return t.harmless()
}

// keepPushing pushes hostile events until stop is called: of those that pass, a page has a sample, which
// may miss one.
func (s *stage) keepPushing(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var pushing sync.WaitGroup
	pushing.Go(func() {
		for ctx.Err() == nil {
			_ = s.pushHostile(ctx) // the page says what is missing
			_ = retry.Sleep(ctx, 200*time.Millisecond)
		}
	})
	return func() { cancel(); pushing.Wait() }
}
