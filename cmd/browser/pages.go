package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// axeVersion is pinned: another one has other rules.
const axeVersion = "4.14.1"

// readAxe reads axe-core from a file, or has npm fetch it.
func readAxe(ctx context.Context, file, dir string) (string, error) {
	if file == "" {
		cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", "axe-core@"+axeVersion)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("fetch axe-core: %w: %s; give its axe.min.js by --axe", err, out)
		}
		packed := exec.CommandContext(ctx, "tar", "xzf", "axe-core-"+axeVersion+".tgz", "package/axe.min.js")
		packed.Dir = dir
		if out, err := packed.CombinedOutput(); err != nil {
			return "", fmt.Errorf("unpack axe-core: %w: %s", err, out)
		}
		file = filepath.Join(dir, "package", "axe.min.js")
	}
	text, err := os.ReadFile(file)
	return string(text), err
}

// inNavigation gives the addresses in the navigation of a page.
const inNavigation = `Array.from(document.querySelectorAll("nav[aria-label=Pages] a"), a => a.getAttribute("href"))`

// paths are all pages to look at: those of the navigation, and those that they lead to.
func (t *tab) paths(s *stage) (all []string, err error) {
	if err := t.eval(inNavigation, &all); err != nil {
		return nil, err
	}
	all = append(all, "/no-such-page")
	if slices.Contains(all, "/changes") {
		all = append(all, fmt.Sprintf("/changes/%d", s.weakened), "/changes?text=breach", "/states", "/changes?text=template")
	}
	if slices.Contains(all, "/sinks") {
		for i, name := range s.sinks {
			all = append(all, fmt.Sprintf("/sinks/history/%s?hours=%d", name, 1+11*i))
		}
		if letter := s.refused(t.ctx); letter > 0 {
			all = append(all, fmt.Sprintf("/sinks/letters/%d", letter))
		}
		all = append(all, "/sinks/letters", fmt.Sprintf("/streaming/%s/%s", s.silent.Project, s.silent.Environment))
	}
	return append(all, fmt.Sprintf("/prove?entry=%d", s.weakened)), nil
}

// lookAtPages has axe-core look at each page, takes pictures, and reads them without scripts.
func lookAtPages(b *chrome, s *stage, axe string, o options, r *report) error {
	r.say("\n%-34s %-10s %8s", "page", "look", "findings")
	if err := s.refuse(b.ctx); err != nil {
		return err
	}
	if err := drawn(b.ctx, s); err != nil {
		return err
	}
	b.expectRefusals(true) // of the page that does not exist
	defer b.expectRefusals(false)
	for _, l := range []look{light, dark, phone, plain} {
		if !o.looksAt(l) {
			continue
		}
		t, err := b.enter(s, l)
		if err != nil {
			return err
		}
		paths, err := t.paths(s)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := t.goTo(s.web + path); err != nil {
				r.fail("%s, %s: %v", path, l.name, err)
				continue
			}
			findings := t.inspect(path, l, axe, r)
			r.say("%-34s %-10s %8d", path, l.name, findings)
			if err := errors.Join(t.keep(o, path, l), t.keepForDocuments(o, s, path, l)); err != nil {
				r.fail("%s, %s: %v", path, l.name, err)
			}
		}
		if err := t.lookAtAPlan(s, l, axe, o, r); err != nil {
			r.fail("a plan, %s: %v", l.name, err)
		}
		t.close()
	}
	b.reportScripts(r)
	return nil
}

// lookAtAPlan looks at a page that only a form leads to.
func (t *tab) lookAtAPlan(s *stage, l look, axe string, o options, r *report) error {
	if err := t.goTo(s.web + "/sinks/letters?sink=picky"); err != nil {
		return err
	}
	if err := t.click(`//button[. = "Discard all that fit"]`); err != nil {
		return err
	}
	if err := t.says("would be removed for good"); err != nil {
		return err
	}
	const name = "/plan"
	r.say("%-34s %-10s %8d", name, l.name, t.inspect(name, l, axe, r))
	return t.keep(o, name, l)
}

// inspect counts what is wrong with a page, and reports it.
func (t *tab) inspect(path string, l look, axe string, r *report) (findings int) {
	var text string
	if err := t.eval(`document.querySelector("main").innerText`, &text); err != nil || strings.TrimSpace(text) == "" {
		r.fail("%s, %s: nothing can be read: %v", path, l.name, err)
	}
	var wide bool
	if err := t.eval(`document.documentElement.scrollWidth > document.documentElement.clientWidth + 1`, &wide); err != nil || wide {
		r.fail("%s, %s: the page is wider than the screen: %v", path, l.name, err)
	}
	var marked int // whatever a hostile text has made of itself
	if err := t.eval(`document.querySelectorAll("main img[onerror], main script").length`, &marked); err != nil || marked > 0 {
		r.fail("%s, %s: a text has become markup: %v", path, l.name, err)
	}
	if strings.Contains(path, "/prove?") && !l.plain {
		if err := t.proven("entry-result"); err != nil {
			r.fail("%s, %s: %v", path, l.name, err)
		}
	}
	if l == phone {
		if err := t.narrow(); err != nil {
			r.fail("%s, %s: %v", path, l.name, err)
		}
	}
	if l.plain {
		return 0
	}
	if err := t.noteScripts(path); err != nil {
		r.fail("%s, %s: %v", path, l.name, err)
	}
	if axe == "" {
		return 0
	}
	var violations []struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	script := axe + `;axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations)`
	if err := t.eval(script, &violations); err != nil {
		r.fail("%s, %s: axe-core: %v", path, l.name, err)
	}
	for _, v := range violations {
		r.fail("%s, %s: axe-core, %s: %s: %s %s", path, l.name, v.ID, v.Help, v.Nodes[0].HTML, v.Nodes[0].FailureSummary)
	}
	return len(violations)
}

// keep writes a picture of a page into a folder, if there is one.
func (t *tab) keep(o options, path string, l look) error {
	dir := o.screenshots
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	png, err := t.picture(!o.viewport)
	if err != nil {
		return err
	}
	name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-").Replace(path), "-")
	if name == "" {
		name = "overview"
	}
	return os.WriteFile(filepath.Join(dir, name+"-"+strings.ReplaceAll(l.name, " ", "-")+".png"), png, 0o600)
}

// keepForDocuments writes a picture of a page that the documents show, if there is a folder for them.
func (t *tab) keepForDocuments(o options, s *stage, path string, l look) error {
	name := map[string]string{"/": "overview", fmt.Sprintf("/changes/%d", s.weakened): "entry", fmt.Sprintf("/prove?entry=%d", s.weakened): "prove"}[path]
	if o.images == "" || name == "" || l != light {
		return nil
	}
	png, err := t.picture(false)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.images, name+".png"), png, 0o644) //nolint:gosec // everybody may read it
}

// picture is a picture of the page, or of what the screen shows of it.
func (t *tab) picture(whole bool) (png []byte, err error) {
	return png, t.do("take a picture", chromedp.ActionFunc(func(ctx context.Context) error {
		var err error
		png, err = page.CaptureScreenshot().WithCaptureBeyondViewport(whole).Do(ctx)
		return err
	}))
}

// prove has the command line prove an entry.
func (s *stage) prove(ctx context.Context, index int64) (record, proof string, err error) {
	dir := filepath.Join(s.relay.DataDir(), "..", "proofs")
	name := filepath.Join(dir, fmt.Sprint(index))
	out, err := exec.CommandContext(ctx, s.binary, "trail", "prove", fmt.Sprint(index), "--data-dir", s.relay.DataDir(), "--dir", dir).CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("prove entry %d: %w: %s", index, err, out)
	}
	text, err := os.ReadFile(name + ".json")
	if err != nil {
		return "", "", err
	}
	note, err := os.ReadFile(name + ".tlog-proof")
	return string(text), string(note), err
}
