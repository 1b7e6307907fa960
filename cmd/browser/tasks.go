package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// mostClicks bounds the clicks of a task.
const mostClicks = 3

// task is what a person comes for. It begins on the overview, logged in as an operator.
type task struct {
	name string
	play func(t *tab, s *stage) error
	// needs is a page without which the task is skipped, and said to be.
	needs string
	// ready waits for what the task needs.
	ready func(context.Context, *stage) error
	// stranger: it begins at the console's address, by somebody who is not logged in.
	stranger bool
}

// tasks are all of them. A page that a task needs, and that the console does not have, fails it.
var tasks = []task{
	{name: "find who weakened what, and prove it", play: proveTheWeakening},
	{name: "check a .tlog-proof offline", play: checkOffline},
	{name: "find the silent environment", play: findSilent},
	{name: "find why a sink is dead", play: findDead},
	{name: "replay dead letters", play: replayLetters},
	{name: "go to the state before a change", play: goBack},
	{name: "export what is seen", play: export},
	{name: "read a chart with the keys", play: readChart},
	{name: "acknowledge a change", play: acknowledge},
	{name: "follow the live events", play: follow, needs: "/live"},
	{name: "follow the live events over a bad line", play: followOverABadLine, needs: "/live"},
	{name: "follow the live events in many windows", play: followInManyWindows, needs: "/live"},
	{name: "see a policy's violation", play: findViolation},
	{name: "log in at the OpenID Connect provider", play: logIn, stranger: true},
	{name: "be refused as a viewer", play: beRefused, stranger: true},
	{name: "read the rates with the keys", play: readRates, ready: drawn},
	{name: "find who weakened what, by keys alone", play: proveByKeys},
	{name: "be told where nothing is verified", play: beToldWhereNothingIsVerified},
}

func playTasks(b *chrome, s *stage, o options, r *report) error {
	there, err := b.navigation(s)
	if err != nil {
		return err
	}
	r.say("%-44s %-8s %6s %8s", "task", "look", "clicks", "seconds")
	for _, one := range tasks {
		if !strings.Contains(one.name, o.only) {
			continue
		}
		if one.needs != "" && !slices.Contains(there, one.needs) {
			r.say("%-44s SKIPPED: the console has no page %s", one.name, one.needs)
			continue
		}
		if one.ready != nil {
			if err := one.ready(b.ctx, s); err != nil {
				return err
			}
		}
		for _, l := range []look{light, dark, phone} {
			if !o.looksAt(l) {
				continue
			}
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

// navigation are the pages that an operator can choose.
func (b *chrome) navigation(s *stage) (paths []string, err error) {
	t, err := b.enter(s, light)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return paths, t.eval(inNavigation, &paths)
}

func (b *chrome) play(s *stage, one task, l look) (clicks int, took time.Duration, err error) {
	begin := b.enter
	if one.stranger {
		begin = func(_ *stage, l look) (*tab, error) { return b.open(l) }
	}
	t, err := begin(s, l)
	if err != nil {
		return 0, 0, err
	}
	defer t.close()
	began := time.Now()
	err = one.play(t, s)
	return t.clicks, time.Since(began), err
}

// enter opens a tab on the overview, logged in by a link.
func (b *chrome) enter(s *stage, l look) (*tab, error) {
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
	if err := t.click(`//main//a[.//span[contains(@class, "badge silent")]]`); err != nil {
		return err
	}
	if err := t.says(s.silent.Project + "/" + s.silent.Environment); err != nil {
		return err
	}
	return t.says("What to do")
}

func findDead(t *tab, _ *stage) error { return t.says("connection refused") }

func goBack(t *tab, _ *stage) error {
	for _, link := range []string{`//main//a[contains(., "breach")]`, `//a[. = "All settings at that time"]`, `//a[. = "Change before"]`} {
		if err := t.click(link); err != nil {
			return err
		}
	}
	return t.until("an older state is shown", `/after entry \d+/.test(document.body.innerText) && location.search.includes("entry=")`)
}

func export(t *tab, _ *stage) error {
	dir, err := os.MkdirTemp("", "auditrelay-browser-export-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	allow := browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorAllow).WithBrowserContextID(t.profile).WithDownloadPath(dir)
	if err := allow.Do(t.whole()); err != nil {
		return fmt.Errorf("allow downloads: %w", err)
	}
	if err := t.click(`//nav//a[. = "Changes"]`); err != nil {
		return err
	}
	if err := t.click(`//a[. = "CSV"]`); err != nil {
		return err
	}
	return rig.Until(t.ctx, patience, "the export is here", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "changes.csv"))
		return err == nil && strings.Contains(string(text), "no longer checked against breaches")
	})
}

func acknowledge(t *tab, _ *stage) error {
	if err := t.click(`//main//a[contains(., "breach")]`); err != nil {
		return err
	}
	if err := t.click(`//button[. = "Acknowledge"]`); err != nil {
		return err
	}
	if err := t.click(`//main//button[@name = "confirm"]`); err != nil {
		return err
	}
	return t.until("it is reviewed", `document.querySelector(".badge.good")?.innerText === "reviewed"`)
}

// replayLetters replays what a destination has refused, once it accepts again.
func replayLetters(t *tab, s *stage) error {
	if err := s.refuse(t.ctx); err != nil {
		return err
	}
	if err := t.goTo(s.web + "/"); err != nil {
		return err
	}
	for _, what := range []string{`//section[@aria-labelledby="sinks"]//tr[contains(., "picky")]//a`, `//button[. = "Replay all that fit"]`, `//main//button[@name="confirm"]`} {
		if err := t.click(what); err != nil {
			return err
		}
	}
	if err := t.says("It has ended."); err != nil {
		return err
	}
	if n := s.refused(t.ctx); n > 0 {
		return fmt.Errorf("dead letter %d is left", n)
	}
	return nil
}

// readChart moves the cursor of an environment's history to the change before, with a key.
func readChart(t *tab, s *stage) error {
	for _, what := range []string{`//nav//a[. = "Streaming"]`, `//main//a[contains(., "` + s.silent.Environment + `")]`} {
		if err := t.click(what); err != nil {
			return err
		}
	}
	if err := t.until("the cursor says what is now", `document.getElementById("axis-cursor").getAttribute("aria-valuetext").includes("Observed by the relay: silent")`); err != nil {
		return err
	}
	if err := t.press("axis-cursor", kb.ArrowLeft); err != nil {
		return err
	}
	return t.until("a page says what the cursor does", `Array.from(document.querySelectorAll("[data-axis]")).every(a => a.querySelector(".cursor-says").innerText === a.querySelector("input").getAttribute("aria-valuetext"))`)
}

// readRates moves the one cursor of all pictures of rates, and looks up the same minute in a table.
func readRates(t *tab, s *stage) error {
	if err := t.goTo(s.web + "/"); err != nil { // it may be open since before the first minutes
		return err
	}
	if err := t.press("minute", kb.ArrowLeft); err != nil {
		return err
	}
	var said string
	if err := t.eval(`document.querySelector("a.picture:has(svg) span").innerText`, &said); err != nil {
		return err
	}
	if err := t.click(`//a[contains(@class, "picture")][.//*[name() = "svg"]]`); err != nil {
		return err
	}
	minute, events, _ := strings.Cut(strings.TrimSuffix(said, " events"), " UTC: ")
	return t.until("the table has "+said, fmt.Sprintf(`Array.from(document.querySelectorAll("#hour-table tbody tr"), r => r.textContent).some(r => r.includes("%s:00 UTC") && r.endsWith("UTC%s"))`, minute, events))
}

// drawn waits until two whole minutes of an environment have passed, of which there is a picture.
func drawn(ctx context.Context, s *stage) error {
	return rig.Until(ctx, 4*time.Minute, "the first minutes have passed", func() bool {
		all := s.environments(ctx)
		return len(all) > 0 && len(all[0].EventsByMinute) > 1
	}, s.relay.Process())
}

// press presses a key on a cursor, which then says something else.
func (t *tab) press(cursor, key string) error {
	says := fmt.Sprintf(`document.getElementById(%q).getAttribute("aria-valuetext")`, cursor)
	if err := t.until("the cursor says something", `window.said = `+says); err != nil {
		return err
	}
	if err := t.do("press a key", chromedp.SendKeys("#"+cursor, key)); err != nil {
		return err
	}
	return t.until("the cursor has moved", says+` !== window.said`)
}

// refuse has the picky sink refuse an event, and accept again from then on.
func (s *stage) refuse(ctx context.Context) error {
	s.picky.status.Store(http.StatusBadRequest)
	defer s.picky.status.Store(http.StatusNoContent)
	return rig.Until(ctx, patience, "an event is refused", func() bool { return s.refused(ctx) > 0 }, s.relay.Process())
}

// refused is the number of the newest dead letter of the picky sink; 0: there is none.
func (s *stage) refused(ctx context.Context) (number uint64) {
	_ = s.client().Letters(ctx, console.ListLetters{Filter: deadletters.Filter{Sink: "picky"}}, func(l *console.Letter) error { number = l.Sequence; return nil })
	return number
}

func findViolation(t *tab, s *stage) error {
	if err := t.click(`//nav//a[. = "Policies"]`); err != nil {
		return err
	}
	return t.until("the violation is named", fmt.Sprintf(`document.querySelector("[aria-label=Violations]")?.innerText.includes(%q)`, s.flowing.Project+"/"+s.flowing.Environment))
}

// logInAs logs in at the provider, from the console's address.
func (t *tab) logInAs(s *stage, name string) error {
	t.expectRefusals(true) // who is not logged in is told so with 401
	defer t.expectRefusals(false)
	if err := t.goTo(s.web + "/"); err != nil {
		return err
	}
	if err := t.click(`//main//a[contains(., "Log in at")]`); err != nil {
		return err
	}
	if err := t.click(`//button[. = "` + name + `"]`); err != nil {
		return err
	}
	return t.until(name+" is logged in", fmt.Sprintf(`document.querySelector("form.who")?.innerText.includes(%q)`, name))
}

func logIn(t *tab, s *stage) error { return t.logInAs(s, "olga") }

func beRefused(t *tab, s *stage) error {
	if err := t.logInAs(s, "vera"); err != nil {
		return err
	}
	t.expectRefusals(true)
	defer t.expectRefusals(false)
	if err := t.goTo(s.web + "/prove"); err != nil {
		return err
	}
	return t.says("Your role is viewer. This takes the role auditor.")
}
