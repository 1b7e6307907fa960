package web

import (
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

// confirmName is the field that turns a plan into the deed.
const confirmName = "confirm"

// confirming is a plan, to be confirmed.
type confirming struct {
	plan
	Path string
	// Fields are sent again.
	Fields url.Values
}

func (c *Console) action(t action) handler {
	return func(w http.ResponseWriter, a *asked) error {
		it, err := t.prepare(a)
		if err != nil {
			return err
		}
		if a.value(confirmName) == "" {
			p, err := it.plan()
			if err != nil {
				return err
			}
			if p.Button != "" {
				p.With = with(p.With, onceName, rand.Text())
			}
			fields := maps.Clone(a.request.PostForm)
			maps.Copy(fields, p.With)
			c.render(w, a, http.StatusOK, confirmFile, shown{Title: t.title, Data: confirming{p, a.request.URL.Path, fields}})
			return nil
		}
		end, err := c.opts.deeds.once(a, it.do)
		if err != nil {
			return err
		}
		c.opts.Logger.Info("a person has acted in the console", "action", t.path, "person", a.person.String(), "result", end.message)
		setNotice(w, end.message)
		http.Redirect(w, a.request, end.path, http.StatusSeeOther)
		return nil
	}
}

// onceName is the field with the number of a plan: a form that is sent twice acts once.
const onceName = "once"

// deeds are the newest actions.
type deeds struct {
	mu  sync.Mutex
	all []*deed // the oldest first; guarded by mu
}

// deed is an action that was confirmed, and how it ended.
type deed struct {
	key  string     // the person, and the number of the plan
	mu   sync.Mutex // held while it is under way
	done bool       // without an error; guarded by mu
	end  done       // guarded by mu
}

// mostDeeds bounds the actions that are remembered.
const mostDeeds = 1000

// once acts, unless the same form was sent before: then it tells how that ended. What has failed may
// be tried again.
func (d *deeds) once(a *asked, act func() (done, error)) (done, error) {
	number := a.value(onceName)
	if number == "" {
		return act()
	}
	it := d.of(a.person.String() + " " + cut(number, 40))
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.done {
		return it.end, nil
	}
	end, err := act()
	it.end, it.done = end, err == nil
	return end, err
}

func (d *deeds) of(key string) *deed {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(it *deed) bool { return it.key == key })
	if i >= 0 {
		return d.all[i]
	}
	it := &deed{key: key}
	d.all = append(d.all[max(0, len(d.all)+1-mostDeeds):], it)
	return it
}

// noticeName is the cookie with the message of an action, for the next page. Another site cannot
// set a cookie of this name.
const noticeName = "__Host-notice"

func setNotice(w http.ResponseWriter, text string) {
	const most = 1000
	access.SetCookie(w, noticeName, cut(text, most), time.Minute, http.SameSiteStrictMode)
}

// takeNotice shows a message once.
func takeNotice(w http.ResponseWriter, r *http.Request) string {
	text := access.Cookie(r, noticeName)
	if text != "" {
		access.SetCookie(w, noticeName, "", -time.Second, http.SameSiteStrictMode)
	}
	return text
}

// cut shortens a text to a number of bytes, about.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

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
