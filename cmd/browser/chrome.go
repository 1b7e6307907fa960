package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// chrome is one Chromium. It reaches loopback alone.
type chrome struct {
	ctx    context.Context
	cancel []context.CancelFunc

	mu      sync.Mutex
	strange []string       // requests to elsewhere, and errors in consoles; guarded by mu
	refused bool           // a page that is refused on purpose logs an error; guarded by mu
	scripts map[string]int // the sizes of what pages have loaded, as transferred, by address; guarded by mu
	most    heavy          // the page that runs most script; guarded by mu
}

// patience bounds one step in the browser, on a machine that may be busy.
const patience = 2 * time.Minute

func newChrome(ctx context.Context, chromium, dir string) (*chrome, error) {
	b := &chrome{scripts: map[string]int{}}
	flags := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.Flag("no-pings", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	allocated, cancel := chromedp.NewExecAllocator(ctx, flags...)
	b.cancel = append(b.cancel, cancel)
	b.ctx, cancel = chromedp.NewContext(allocated)
	b.cancel = append(b.cancel, cancel)
	return b, chromedp.Run(b.ctx)
}

func (b *chrome) close() {
	for i := len(b.cancel) - 1; i >= 0; i-- {
		b.cancel[i]()
	}
}

// whole is for commands to the browser, and not to a tab.
func (b *chrome) whole() context.Context {
	return cdp.WithExecutor(b.ctx, chromedp.FromContext(b.ctx).Browser)
}

func (b *chrome) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strange = append(b.strange, fmt.Sprintf(format, args...))
}

func (b *chrome) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strange
}

// look is how a page is looked at.
type look struct {
	name  string
	dark  bool
	width int64
	// plain: without scripts.
	plain bool
}

// The looks that tasks are played in.
var (
	light = look{name: "light", width: 1280}
	dark  = look{name: "dark", dark: true, width: 1280}
	phone = look{name: "phone", width: 360}
	plain = look{name: "no scripts", width: 1280, plain: true}
)

// tab is an open page of a person with cookies of their own. It counts their clicks.
type tab struct {
	*chrome
	ctx     context.Context
	cancel  context.CancelFunc
	profile cdp.BrowserContextID
	clicks  int
}

// open opens a tab without cookies.
func (b *chrome) open(l look) (*tab, error) {
	profile, err := target.CreateBrowserContext().Do(b.whole())
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	return b.window(profile, l)
}

// window opens a window of a person.
func (b *chrome) window(profile cdp.BrowserContextID, l look) (*tab, error) {
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).Do(b.whole())
	if err != nil {
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	t := &tab{chrome: b, ctx: ctx, cancel: cancel, profile: profile}
	chromedp.ListenTarget(ctx, b.hear)
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	err = chromedp.Run(ctx, network.Enable(), runtime.Enable(), cdplog.Enable(),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetDeviceMetricsOverride(l.width, 800, 1, l.width < 600),
		emulation.SetScriptExecutionDisabled(l.plain))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open a tab: %w", err)
	}
	return t, nil
}

// hear notes what no page may do.
func (b *chrome) hear(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || u.Scheme != "data" && u.Scheme != "blob" && u.Hostname() != "127.0.0.1" && u.Hostname() != "localhost" {
			b.complain("a request left the machine: %s", e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.complain("a page at %s opened a dialog: %s", e.URL, e.Message)
	case *runtime.EventExceptionThrown:
		b.complain("an exception in a page: %s", e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			b.complain("a page wrote an error to its console: %s", e.Args[0].Value)
		}
	case *cdplog.EventEntryAdded:
		b.mu.Lock()
		expected := b.refused && strings.Contains(e.Entry.Text, "the server responded with a status of 4") ||
			strings.Contains(e.Entry.URL, "/mail?") // what the policy of a mail refuses
		b.mu.Unlock()
		if e.Entry.Level == cdplog.LevelError && !expected {
			b.complain("the browser logged an error at %s: %s", e.Entry.URL, e.Entry.Text)
		}
	}
}

// expectRefusals lets pages be refused, until it is called again.
func (b *chrome) expectRefusals(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = yes
}

func (t *tab) close() { t.cancel() }

// do takes steps, and names them if one fails.
func (t *tab) do(what string, steps ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, steps...); err != nil {
		return fmt.Errorf("%s: %w; %s", what, err, t.where())
	}
	return nil
}

// where is where the page is, for errors.
func (t *tab) where() string {
	ctx, cancel := context.WithTimeout(t.ctx, time.Second)
	defer cancel()
	var at, text string
	_ = chromedp.Run(ctx, chromedp.Location(&at), chromedp.Evaluate(`document.querySelector("main")?.innerText.slice(0, 300) ?? ""`, &text)) // for an error
	return fmt.Sprintf("at %s, which says %q", at, text)
}

func (t *tab) goTo(address string) error {
	return t.do("go to "+address, chromedp.Navigate(address), chromedp.WaitReady("main"))
}

// click clicks on the first visible thing that a selector or an XPath finds.
func (t *tab) click(what string) error {
	t.clicks++
	return t.do("click on "+what, chromedp.ScrollIntoView(what, chromedp.BySearch), chromedp.Click(what, chromedp.BySearch, chromedp.NodeVisible))
}

// until waits until an expression of JavaScript holds, on whatever page is there by then.
func (t *tab) until(what, expression string) error {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var holds bool
		err := t.eval("!!("+expression+")", &holds)
		if err == nil && holds || t.ctx.Err() != nil {
			return t.ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("wait until %s: %w; %s", what, context.DeadlineExceeded, t.where())
		}
	}
}

func (t *tab) says(text string) error {
	return t.until(fmt.Sprintf("the page says %q", text), fmt.Sprintf(`document.readyState === "complete" && document.body.innerText.includes(%q)`, text))
}

func (t *tab) eval(expression string, into any) error {
	return t.do("evaluate", chromedp.Evaluate(expression, into, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
}
