package main

import (
	"strings"
	"sync/atomic"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

func follow(t *tab, _ *stage) error {
	if err := t.click(`//nav//a[. = "Live"]`); err != nil {
		return err
	}
	if err := t.until("events are shown", `document.querySelectorAll("main article").length > 3`); err != nil {
		return err
	}
	newest := `document.querySelector("#sample article").innerText`
	if err := t.until("newer events come into the same page", `(window.first ??= `+newest+`) !== `+newest); err != nil {
		return err
	}
	if err := t.until("the newest 50 are shown, over one stream", `document.querySelectorAll("main article").length === 50 && document.querySelector(".lost").hidden`); err != nil {
		return err
	}
	if err := t.click(`//main//a[. = "Hold"]`); err != nil {
		return err
	}
	return t.until("the page is held", `document.querySelector("#live[hx-sse\\:connect]") === null && document.querySelectorAll("main article").length > 3`)
}

// follows waits until a live page has got something over its stream.
func (t *tab) follows() error {
	return t.until("the page follows", `document.querySelector("#sample")?.innerText.includes("Since the page was opened") && document.querySelector(".lost").hidden`)
}

// followOverABadLine has the script that reads streams come late, and the first request for a stream
// refused. The page says that it is interrupted, and then it follows.
func followOverABadLine(t *tab, _ *stage) error {
	t.expectRefusals(true)
	defer t.expectRefusals(false)
	late := make(chan struct{})
	if err := t.delay(late); err != nil {
		return err
	}
	if err := t.click(`//nav//a[. = "Live"]`); err != nil {
		return err
	}
	if err := t.until("the other scripts are there", `typeof htmx !== "undefined"`); err != nil {
		return err
	}
	if err := t.eval(`new Promise(done => setTimeout(() => done(true)))`, new(bool)); err != nil { // whatever waited for them has run
		return err
	}
	close(late)
	if err := t.until("the page says that it is interrupted", `!(document.querySelector(".lost")?.hidden ?? true)`); err != nil {
		return err
	}
	return t.follows()
}

// delay has the script that reads streams wait, and the tab's first request for a stream refused.
func (t *tab) delay(late <-chan struct{}) error {
	var asked atomic.Bool
	chromedp.ListenTarget(t.ctx, func(event any) {
		paused, is := event.(*fetch.EventRequestPaused)
		if !is {
			return
		}
		go func() {
			ctx := cdp.WithExecutor(t.ctx, chromedp.FromContext(t.ctx).Target)
			isScript := strings.HasSuffix(paused.Request.URL, ".js")
			if isScript {
				<-late
			}
			var err error
			if isScript || asked.Swap(true) {
				err = fetch.ContinueRequest(paused.RequestID).Do(ctx)
			} else {
				err = fetch.FulfillRequest(paused.RequestID, 429).Do(ctx)
			}
			if err != nil && t.ctx.Err() == nil {
				t.complain("a request could not go on: %v", err)
			}
		}()
	})
	return t.do("stand in the middle", fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/hx-sse*"}, {URLPattern: "*/live/events*"}}))
}

// manyWindows are more than a browser has connections to a server.
const manyWindows = 7

// followInManyWindows opens more live pages than a browser has connections. The oldest of them say that
// they have stopped, and the console answers.
func followInManyWindows(t *tab, s *stage) error {
	if err := t.click(`//nav//a[. = "Live"]`); err != nil {
		return err
	}
	if err := t.follows(); err != nil {
		return err
	}
	for range manyWindows - 1 {
		w, err := t.window(t.profile, light)
		if err != nil {
			return err
		}
		defer w.close()
		if err := w.goTo(s.web + "/live"); err != nil {
			return err
		}
		if err := w.follows(); err != nil {
			return err
		}
	}
	return t.says("you follow the live events in other pages")
}
