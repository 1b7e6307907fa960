package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// middle alters one file of the trail on its way to a page. Its methods may be called concurrently.
type middle struct {
	mu     sync.Mutex
	rng    *rand.Rand
	kind   string // of the file to alter; empty: none
	name   string // of what was altered
	passed map[string]int
}

// kindOf tells the files of a log apart.
func kindOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/checkpoint"):
		return "checkpoint"
	case strings.Contains(path, "/tile/entries/"), strings.Contains(path, "/records/"):
		return "entries"
	case strings.Contains(path, "/tile/"):
		return "tile"
	}
	return ""
}

// alter changes a bit, or leaves out a part of the file, once.
func (m *middle) alter(path string, body []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := kindOf(path)
	m.passed[kind]++
	if kind == "" || kind != m.kind || len(body) == 0 {
		return body
	}
	m.kind = ""
	at := m.rng.IntN(len(body))
	m.name = fmt.Sprintf("%s, byte %d of %d", path, at, len(body))
	if m.rng.IntN(4) == 0 {
		return append(append([]byte{}, body[:at]...), body[at+1:]...)
	}
	altered := append([]byte{}, body...)
	altered[at] ^= 1 << m.rng.IntN(8)
	return altered
}

func (m *middle) set(kind string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kind, m.name = kind, ""
}

// stand has the tab's requests for the trail's files pass here.
func (m *middle) stand(t *tab) error {
	chromedp.ListenTarget(t.ctx, func(event any) {
		paused, is := event.(*fetch.EventRequestPaused)
		if !is {
			return
		}
		go func() {
			ctx := cdp.WithExecutor(t.ctx, chromedp.FromContext(t.ctx).Target)
			body, err := fetch.GetResponseBody(paused.RequestID).Do(ctx)
			if err == nil {
				_, path, _ := strings.Cut(paused.Request.URL, "/tlog/")
				body = m.alter("/"+path, body)
				err = fetch.FulfillRequest(paused.RequestID, paused.ResponseStatusCode).WithBody(base64.StdEncoding.EncodeToString(body)).Do(ctx)
			}
			if err != nil && t.ctx.Err() == nil {
				t.complain("a file could not be altered on its way: %v", err)
			}
		}()
	})
	return t.do("stand in the middle", fetch.Enable().WithPatterns([]*fetch.RequestPattern{{URLPattern: "*/tlog/*", RequestStage: fetch.RequestStageResponse}}))
}

// tamper alters files on their way to the page that proves entries, each of which must turn it red.
func tamper(b *chrome, s *stage, o options, r *report) error {
	t, err := b.enter(s, light)
	if err != nil {
		return err
	}
	defer t.close()
	m := &middle{rng: rand.New(rand.NewPCG(o.seed, 0)), passed: map[string]int{}}
	if err := m.stand(t); err != nil {
		return err
	}
	if err := t.goTo(s.web + "/prove"); err != nil {
		return err
	}
	if err := t.until("the page is ready", `!document.getElementById("check").closest(".scripted").hidden`); err != nil {
		return err
	}
	found, kinds := 0, []string{"tile", "entries", "checkpoint"}
	for i := range o.tamper {
		if err := m.sound(t, s.weakened, i); err != nil {
			return err
		}
		m.set(kinds[i%len(kinds)])
		verdict, err := t.proof(s.weakened - int64(m.rng.IntN(int(min(s.weakened, 5)+1))))
		switch {
		case err != nil:
			return err
		case verdict == "bad" && m.altered() != "":
			found++
		default:
			r.fail("tampering %d: the page says %q, though it was given an altered %s", i, verdict, m.altered())
		}
	}
	r.say("\n%d of %d altered tiles, entries and checkpoints turn the proof red", found, o.tamper)
	return m.sound(t, s.weakened, 0)
}

func (m *middle) altered() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name
}

// sound has every 20th proof be of files as they are, which must hold.
func (m *middle) sound(t *tab, index int64, i int) error {
	if i%20 != 0 {
		return nil
	}
	m.set("")
	verdict, err := t.proof(index)
	if err == nil && verdict != "good" {
		err = fmt.Errorf("a sound entry is not proven; %s", t.where())
	}
	return err
}

// proof has the page prove an entry, and gives the class of its verdict. Right after an entry the
// witness may not have signed it yet.
func (t *tab) proof(index int64) (verdict string, err error) {
	script := fmt.Sprintf(`(async () => {
		const entry = document.getElementById("entry"), verdict = document.querySelector("#entry-result .verdict");
		entry.value = %d;
		entry.form.requestSubmit();
		while (!/good|bad|warn/.test(verdict.className)) await new Promise(done => setTimeout(done, 5));
		return /good|bad|warn/.exec(verdict.className)[0];
	})()`, index)
	return verdict, t.eval(script, &verdict)
}
