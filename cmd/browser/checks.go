package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// sideways lists what a person would have to scroll sideways.
const sideways = `Array.from(document.querySelectorAll("main *:not(input, textarea, select)"))
	.filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 && /auto|scroll/.test(getComputedStyle(e).overflowX)).map(e => e.outerHTML.slice(0, 200))`

// narrow wants everything on a phone to be readable without scrolling sideways, folded parts too, and
// tables to be tables to screen readers, although their rows are stacked.
func (t *tab) narrow() error {
	const fold = `document.querySelectorAll("details%s").forEach(d => d.%s), 0`
	if err := t.eval(fmt.Sprintf(fold, ":not([open])", "open = d.dataset.folded = true"), new(int)); err != nil {
		return err
	}
	var wide []string
	if err := t.eval(sideways, &wide); err != nil {
		return err
	}
	if len(wide) > 0 {
		return fmt.Errorf("%d parts have to be scrolled sideways, such as %s", len(wide), wide[0])
	}
	if err := t.tables(); err != nil {
		return err
	}
	return t.eval(fmt.Sprintf(fold, "[data-folded]", "open = false"), new(int))
}

// tables holds what screen readers are told against the page's tables.
func (t *tab) tables() error {
	want := map[string]int{}
	if err := t.eval(`Object.fromEntries([["table", "table"], ["row", "tr"], ["columnheader", "thead th"]].map(([role, what]) => [role, document.querySelectorAll("main " + what).length]))`, &want); err != nil {
		return err
	}
	told := map[string]int{"table": 0, "row": 0, "columnheader": 0}
	err := t.do("read what screen readers are told", chromedp.ActionFunc(func(ctx context.Context) error {
		nodes, err := accessibility.GetFullAXTree().Do(ctx)
		for _, n := range nodes {
			var role string
			if n.Role == nil || json.Unmarshal(n.Role.Value, &role) != nil {
				continue
			}
			if _, counts := told[role]; counts {
				told[role]++
			}
		}
		return err
	}))
	if err == nil && !maps.Equal(want, told) {
		err = fmt.Errorf("screen readers are told of %v, and the page has %v", told, want)
	}
	return err
}

// mostScript bounds the scripts of each page, in bytes as they are run, and those of all pages together,
// in bytes as they are transferred.
const mostScript = 60 << 10

// heavy is a page with the size of the scripts that it runs.
type heavy struct {
	path string
	run  int
}

// noteScripts adds the scripts of a page to those of all pages.
func (t *tab) noteScripts(path string) error {
	var these []struct {
		Name      string
		Sent, Run int
	}
	const all = `performance.getEntriesByType("resource").filter(r => r.name.endsWith(".js")).map(r => ({name: r.name, sent: r.encodedBodySize, run: r.decodedBodySize}))`
	if err := t.eval(all, &these); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	here := heavy{path: path}
	for _, s := range these {
		t.scripts[s.Name] = s.Sent
		here.run += s.Run
	}
	if here.run > t.most.run {
		t.most = here
	}
	return nil
}

// reportScripts says how large the scripts of all pages are.
func (b *chrome) reportScripts(r *report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent := 0
	for _, size := range b.scripts {
		sent += size
	}
	const kb = 1 << 10
	r.say("\n%d scripts, %.1f KB in all as transferred; %s runs most of them, %.1f KB; each at most %d KB", len(b.scripts), float64(sent)/kb, b.most.path, float64(b.most.run)/kb, mostScript/kb)
	if sent == 0 || max(sent, b.most.run) > mostScript {
		r.fail("the scripts have %d bytes as transferred, and %s runs %d; each may have %d", sent, b.most.path, b.most.run, mostScript)
	}
}

// mostTabs bounds the way to something by the key Tab.
const mostTabs = 150

// reach goes on by the key Tab until a thing has the focus, which must be seen.
func (t *tab) reach(what string) error {
	for range mostTabs {
		if err := t.do("press Tab", chromedp.KeyEvent(kb.Tab)); err != nil {
			return err
		}
		var at, seen bool
		if err := t.eval(fmt.Sprintf(`document.activeElement.matches(%q)`, what), &at); err != nil {
			return err
		}
		if err := t.eval(`document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== "none"`, &seen); err != nil {
			return err
		}
		if !seen {
			return fmt.Errorf("what has the focus is not to be told from the others; %s", t.where())
		}
		if at {
			return t.do("press Enter", chromedp.KeyEvent(kb.Enter))
		}
	}
	return errors.New("the key Tab does not reach " + what)
}

// proveByKeys finds who weakened what and proves it, by keys alone.
func proveByKeys(t *tab, s *stage) error {
	for _, what := range []string{".skip", fmt.Sprintf(`main a[href="/changes/%d"]`, s.weakened)} {
		if err := t.reach(what); err != nil {
			return err
		}
	}
	if err := t.says("no longer checked against breaches"); err != nil {
		return err
	}
	if err := t.reach(`a[href^="/prove?entry="]`); err != nil {
		return err
	}
	return t.proven("entry-result")
}

// beToldWhereNothingIsVerified opens the page Prove in a browser that lends it no cryptography, as browsers
// do on plain HTTP from another machine.
func beToldWhereNothingIsVerified(t *tab, s *stage) error {
	err := t.do("take the cryptography away", chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(`Object.defineProperty(Crypto.prototype, "subtle", {value: undefined})`).Do(ctx)
		return err
	}))
	if err != nil {
		return err
	}
	if err := t.goTo(fmt.Sprintf("%s/prove?entry=%d", s.web, s.weakened)); err != nil {
		return err
	}
	return t.until("the page says that it cannot be verified here",
		`document.querySelector("#entry-result .verdict.warn")?.innerText.includes("cannot be verified here") && !document.querySelector(".verdict.good") && document.querySelector(".scripted").hidden`)
}

// looksAt reports whether a look is among those to be played.
func (o options) looksAt(l look) bool { return slices.Contains(o.looks, l.name) }
