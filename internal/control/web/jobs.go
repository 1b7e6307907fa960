package web

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

const (
	jobsPath = "/jobs"
	// mostJobs bounds the pieces of work that are remembered, and runningJobs those under way.
	mostJobs, runningJobs = 20, 4
)

// jobs are pieces of work that take long. They go on when the browser goes away, and end with the
// relay; what they do is safe to be cut off at any point.
type jobs struct {
	mu  sync.Mutex
	all []*work // the oldest first; guarded by mu
}

// work is a piece of it, as a page shows it.
type work struct {
	ID, Title, Person string
	Begun, Ended      time.Time // Ended is zero while it runs
	Progress          console.Progress
	Error             string

	stop context.CancelFunc
}

// Running reports whether it has not ended.
func (w work) Running() bool { return w.Ended.IsZero() }

// begin starts a piece of work, and leads to its page.
func (j *jobs) begin(a *asked, title string, run func(w *asked, report func(*console.Progress)) error) (done, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	w := &work{ID: rand.Text()[:12], Title: title, Person: a.person.String(), Begun: time.Now(), stop: cancel}
	if !j.add(w) {
		cancel()
		return done{}, &problem{409, "Too much work is under way already.", "Wait for the end of one piece, or stop one."}
	}
	inside := *a
	inside.ctx = ctx
	go func() {
		defer cancel()
		err := run(&inside, func(p *console.Progress) { j.change(func() { w.Progress = *p }) })
		j.change(func() {
			if w.Ended = time.Now(); ctx.Err() != nil {
				w.Error = "somebody stopped it"
			} else if err != nil {
				w.Error = err.Error()
			}
		})
	}()
	return done{title + " has begun.", jobsPath + "/" + w.ID}, nil
}

// add makes room by forgetting the oldest that has ended.
func (j *jobs) add(w *work) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	for _, o := range j.all {
		if o.Running() {
			running++
		}
	}
	if running >= runningJobs {
		return false
	}
	if len(j.all) >= mostJobs {
		i := slices.IndexFunc(j.all, func(o *work) bool { return !o.Running() })
		j.all = slices.Delete(j.all, i, i+1)
	}
	j.all = append(j.all, w)
	return true
}

func (j *jobs) change(edit func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	edit()
}

// of gives a copy of a piece of work.
func (j *jobs) of(id string) (work, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.all {
		if w.ID == id {
			return *w, nil
		}
	}
	return work{}, &problem{404, "There is no such piece of work.", "It ended some time ago, or with the relay."}
}

// jobOf is the page of a piece of work, which loads itself again until the end.
func jobOf(a *asked) (any, error) { return a.opts.jobs.of(a.request.PathValue("id")) }

func stopWork(a *asked) (prepared, error) {
	w, err := a.opts.jobs.of(a.request.PathValue("id"))
	ended := w.Title + " has ended already."
	return prepared{
		plan: func() (plan, error) {
			if !w.Running() {
				return plan{Says: []string{ended}}, nil
			}
			return plan{Says: []string{w.Title + " would be stopped. What was done stays done, and it can be begun again."}, Button: "Stop it"}, nil
		},
		do: func() (done, error) {
			end := done{ended, jobsPath + "/" + w.ID}
			if !w.Running() {
				return end, nil
			}
			if err := a.client.EnterStop(a.ctx, console.StoppedWork{Work: w.Title, Begun: w.Begun, By: w.Person}); err != nil {
				return end, err
			}
			w.stop()
			end.message = w.Title + " is being stopped."
			return end, nil
		},
	}, err
}
