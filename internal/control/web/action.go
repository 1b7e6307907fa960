package web

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
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
