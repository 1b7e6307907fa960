// Command browser drives a real browser, Debian's Chromium, through the relay's console as people
// use it. A real relay plays a story in a simulated workspace: a weakened password policy, a
// phishing link in a template, a silent environment, a dead sink, dead letters. It counts clicks and
// seconds of each task, in light, dark and on a phone; has axe-core look at each page; looks at
// hostile texts of an event, of names and of a template; alters tiles, entries and checkpoints on
// their way to the page that proves them; reads all pages without scripts; compares a relay under load
// with and without pages that follow its events; and times the pages over a long trail and many
// environments. It prints tables, and its exit code is 0 if all holds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

type options struct {
	binary, chromium, axe, screenshots string
	tamper, entries, environments      int
	seed                               uint64
	parts, only, images                string
	looks                              []string
	viewport                           bool
	load                               time.Duration
}

func main() {
	o := options{}
	flag.StringVar(&o.binary, "binary", "bin/auditrelay", "the relay to try, a `FILE`")
	flag.StringVar(&o.chromium, "chromium", "chromium", "the browser, a `FILE` or a name in PATH")
	flag.StringVar(&o.axe, "axe", "", "axe.min.js, a `FILE` (default: npm fetches axe-core "+axeVersion+")")
	flag.StringVar(&o.screenshots, "screenshots", "", "write a picture of each page, light, dark and on a phone, into the folder `DIR`")
	flag.BoolVar(&o.viewport, "viewport", false, "the pictures show one screen, and not the whole page")
	flag.IntVar(&o.tamper, "tamper", 200, "how many files are altered on their way to the page that proves them")
	flag.IntVar(&o.entries, "entries", 1_000_000, "how many entries the long trail has, for the times of pages; 0 measures none")
	flag.IntVar(&o.environments, "environments", 1000, "how many environments there are with it")
	flag.DurationVar(&o.load, "load", 10*time.Second, "how long 5000 events a second pass, without live pages and with some, each")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is altered")
	flag.StringVar(&o.parts, "parts", "tasks,pages,hostile,tampering,load,times", "what to play, a `LIST`")
	flag.StringVar(&o.only, "only", "", "play only the tasks with this `TEXT` in their names")
	flag.StringVar(&o.images, "images", "", "write the pictures of the documents into the folder `DIR`, deploy/docs/images")
	looks := flag.String("looks", "light,dark,phone,no scripts", "how tasks and pages are looked at, a `LIST`")
	flag.Parse()
	o.looks = strings.Split(*looks, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

// removed removes a folder, in which processes of the browser may still write as they end.
func removed(dir string) (err error) {
	for range 100 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// run plays everything, and collects what does not hold.
func run(ctx context.Context, o options) (err error) {
	if o.chromium, err = exec.LookPath(o.chromium); err != nil {
		return fmt.Errorf("there is no browser: %w; 'apt-get install chromium' installs it, or name one by --chromium", err)
	}
	dir, err := os.MkdirTemp("", "auditrelay-browser-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removed(dir)) }()
	r := &report{}
	axe, err := readAxe(ctx, o.axe, dir)
	if err != nil {
		r.say("SKIPPED axe-core: %v", err)
	}
	began := time.Now()
	s, err := newStage(ctx, o, dir)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	b, err := newChrome(ctx, o.chromium, dir)
	if err != nil {
		return err
	}
	defer b.close()
	parts := []struct {
		name string
		play func() error
	}{
		{"tasks", func() error { return playTasks(b, s, o, r) }},
		{"pages", func() error { return lookAtPages(b, s, axe, o, r) }},
		{"hostile", func() error { return lookAtHostile(b, s, axe, o, r) }},
		{"tampering", func() error { return tamper(b, s, o, r) }},
		{"load", func() error { return compareLoads(ctx, b, o, dir, r) }},
		{"times", func() error { return measure(ctx, b, o, dir, r) }},
	}
	for _, part := range parts {
		if !slices.Contains(strings.Split(o.parts, ","), part.name) {
			continue
		}
		if err := part.play(); err != nil {
			r.fail("%s: %v", part.name, err)
		}
	}
	for _, what := range b.complaints() {
		r.fail("%s", what)
	}
	r.print(time.Since(began))
	return r.verdict(ctx)
}

// report collects what there is to print.
type report struct {
	tables   []string
	failures []string
}

func (r *report) fail(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *report) say(format string, args ...any) {
	r.tables = append(r.tables, fmt.Sprintf(format, args...))
}

func (r *report) print(took time.Duration) {
	fmt.Println(strings.Join(r.tables, "\n"))
	fmt.Printf("\n%d things do not hold; it took %s\n", len(r.failures), took.Round(time.Second))
	for _, f := range r.failures {
		fmt.Println("  -", f)
	}
}

func (r *report) verdict(ctx context.Context) error {
	if len(r.failures) > 0 {
		return errors.Join(fmt.Errorf("%d things do not hold", len(r.failures)), ctx.Err())
	}
	return ctx.Err()
}
