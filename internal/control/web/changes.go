package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

const changesPath = "/changes"

// rowsPerPage is how many entries a page of changes has.
const rowsPerPage = 50

// changes is a page of the timeline, the newest entry first.
type changes struct {
	Form  url.Values // the applied filter, which can be edited
	Error string     // what is wrong with it
	Rows  []timeline.Row
	// Newest, Newer and Older are addresses of other pages; empty where there are none.
	Newest, Newer, Older string
	MostProofs           int // in an export of this person; 0: proofs are for others
}

// Without is the address without one part of the filter.
func (c changes) Without(name string) string { return address(changesPath, with(c.Form, name, "")) }

// Export is the address of what the filter chooses, in a form.
func (c changes) Export(form string) string { return address(exportPath, with(c.Form, "form", form)) }

func changesOf(a *asked) (any, error) {
	f, err := filterOf(a.request.Form)
	data := changes{Form: chosen(a.request.Form)}
	if a.role >= access.Auditor {
		data.MostProofs = mostProofs
	}
	if err != nil {
		data.Error = err.Error()
		return data, nil //nolint:nilerr // the page says what is wrong with the form
	}
	return data, data.read(a, f)
}

// read gives the page that the fields "before" or "after" of the address name by an index; without
// them the newest one.
func (c *changes) read(a *asked, f timeline.Filter) (err error) {
	before, isBefore, err := indexIn(a.request.Form, "before")
	if err != nil {
		return err
	}
	after, isAfter, err := indexIn(a.request.Form, "after")
	if err != nil {
		return err
	}
	further := false // in the direction of reading
	if isAfter {
		f.From = new(after + 1)
		c.Rows, further, err = oldest(a, f)
		slices.Reverse(c.Rows)
	} else {
		if isBefore {
			f.Before = &before
		}
		c.Rows, further, err = newest(a, f)
	}
	if err != nil {
		return err
	}
	if isAfter || isBefore {
		c.Newest = address(changesPath, c.Form)
	}
	if n := len(c.Rows); n > 0 {
		if isBefore || isAfter && further {
			c.Newer = address(changesPath, with(c.Form, "after", strconv.FormatInt(c.Rows[0].Index, 10)))
		}
		if isAfter || further {
			c.Older = address(changesPath, with(c.Form, "before", strconv.FormatInt(c.Rows[n-1].Index, 10)))
		}
	}
	return nil
}

// newest reads the newest rows that a filter chooses, the newest first, and whether there are more.
func newest(a *asked, f timeline.Filter) (rows []timeline.Row, more bool, err error) {
	f.Limit = rowsPerPage + 1
	rows, err = listed(a, f)
	slices.Reverse(rows)
	more = len(rows) > rowsPerPage
	return rows[:min(len(rows), rowsPerPage)], more, err
}

// errEnough ends a list.
var errEnough = errors.New("enough")

// oldest reads the oldest rows, the oldest first.
func oldest(a *asked, f timeline.Filter) (rows []timeline.Row, more bool, err error) {
	err = a.client.List(a.ctx, console.ListTrail{Filter: f}, func(r timeline.Row) error {
		if more = len(rows) == rowsPerPage; more {
			return errEnough
		}
		rows = append(rows, r)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, more, err
}

// indexIn is the index of an entry in a form, if there is one.
func indexIn(form url.Values, name string) (index int64, is bool, err error) {
	text := form.Get(name)
	if text == "" {
		return 0, false, nil
	}
	if index, err = strconv.ParseInt(text, 10, 64); err != nil || index < 0 {
		return 0, false, &problem{http.StatusBadRequest, fmt.Sprintf("%q is not the index of an entry.", cut(text, 40)), "Write a number from 0 on."}
	}
	return index, true, nil
}

// filterFields are the fields of an address that choose entries, with what a page calls them.
var filterFields = []struct{ Name, Label string }{
	{"text", "Words"},
	{"project", "Project"},
	{"environment", "Environment"},
	{"setting", "Setting"},
	{"severity", "Severity, at least"},
	{"direction", "Direction"},
	{"cause", "Cause"},
	{"actor", "Who"},
	{"since", "From"},
	{"until", "Until"},
	{"unreviewed", "Unreviewed only"},
	{"all", "Event digests too"},
}

// filterOf reads a filter, in the words of 'auditrelay trail list'.
func filterOf(form url.Values) (f timeline.Filter, err error) {
	value := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	f = timeline.Filter{
		Text: value("text"), Project: value("project"), Environment: value("environment"), Setting: value("setting"), Severity: value("severity"),
		Direction: value("direction"), Cause: value("cause"), Actor: value("actor"), Unreviewed: value("unreviewed") != "",
	}
	if f.Since, f.Until, err = timesIn(form); err != nil {
		return f, err
	}
	if value("all") == "" && f.Setting == "" {
		f.Without = eventproof.Type
	}
	return f, f.Check()
}

// timeForms are those of the browsers' fields, which have no zone, and of other programs.
var timeForms = []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339Nano, time.DateOnly}

// parseTime reads a time in UTC; empty is none.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("the time %q cannot be read: write it as 2026-03-01T08:00, in UTC", cut(text, 40))
}

// timesIn reads the fields "since" and "until" of a form.
func timesIn(form url.Values) (since, until time.Time, err error) {
	if since, err = parseTime(strings.TrimSpace(form.Get("since"))); err == nil {
		until, err = parseTime(strings.TrimSpace(form.Get("until")))
	}
	return since, until, err
}

// chosen are the fields of a filter in a form, without empty ones.
func chosen(form url.Values) url.Values {
	v := url.Values{}
	for _, field := range filterFields {
		if text := strings.TrimSpace(form.Get(field.Name)); text != "" {
			v.Set(field.Name, text)
		}
	}
	return v
}

// with is a copy of an address's fields with another value for one; empty removes it.
func with(fields url.Values, name, value string) url.Values {
	v := url.Values{}
	for key := range fields {
		v.Set(key, fields.Get(key))
	}
	v.Set(name, value)
	if value == "" {
		v.Del(name)
	}
	return v
}

func address(path string, fields url.Values) string {
	if len(fields) == 0 {
		return path
	}
	return path + "?" + fields.Encode()
}
