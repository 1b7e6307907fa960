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
	mistake
	Form url.Values // the applied filter, which can be edited
	Rows []timeline.Row
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

const (
	statesPath = "/states"
	// mostStates bounds the settings of a page, and mostValues those that are shown with their values.
	mostStates = 200
	mostValues = 40
)

// states are the settings as the trail had them after an entry.
type states struct {
	Project, Environment string
	// Entry is the last one that counts, and Last the newest of the trail; -1: the trail is empty.
	Entry, Last int64
	At          time.Time // of Entry
	Asked       string    // a time that was asked for
	// Former and Latter are the changes before and after; nil: there is none.
	Former, Latter *int64
	List           []stateOfSetting
	More           bool // there are more settings than List has
	mistake
}

// stateOfSetting is a setting with its newest state.
type stateOfSetting struct {
	timeline.Setting
	Value   stateText
	Gone    bool // the setting was not there
	Unknown bool // its value is not shown
}

func statesOf(a *asked) (any, error) {
	s := &states{Project: a.value("project"), Environment: a.value("environment"), Last: -1, Asked: a.value("at")}
	if err := s.place(a); err != nil || s.Last < 0 || s.Error != "" {
		return s, err
	}
	end := s.Entry + 1
	list, err := a.client.Settings(a.ctx, timeline.Filter{Project: s.Project, Environment: s.Environment, Before: &end, Limit: mostStates + 1})
	if err != nil {
		return nil, err
	}
	s.More = len(list) > mostStates
	list = list[:min(len(list), mostStates)]
	for _, setting := range list {
		one := stateOfSetting{Setting: setting, Unknown: true}
		if len(list) <= mostValues {
			if err := one.read(a); err != nil {
				return nil, err
			}
		}
		s.List = append(s.List, one)
	}
	return s, s.neighbours(a)
}

// place finds the entry of the time that is asked for: the newest one, one by its index, or the last
// one until a time.
func (s *states) place(a *asked) error {
	row, err := one(a, timeline.Filter{Limit: 1})
	if err != nil || row == nil {
		return err
	}
	s.Last, s.Entry, s.At = row.Index, row.Index, row.Time
	f := timeline.Filter{Limit: 1}
	index, is, err := indexIn(a.request.Form, "entry")
	switch {
	case err != nil:
		return err
	case s.Asked != "":
		at, err := parseTime(s.Asked)
		if err != nil {
			s.Error = err.Error()
			return nil //nolint:nilerr // the page says what is wrong with the form
		}
		f.Until = at.Add(1)
	case is:
		f.Before = new(min(index, s.Last) + 1)
	default:
		return nil
	}
	if row, err = one(a, f); err != nil {
		return err
	}
	if row == nil {
		s.Error = "The trail has no entry of that time: it begins later."
		return nil
	}
	s.Entry, s.At = row.Index, row.Time
	return nil
}

// one is the only or the newest row that a filter chooses; nil: there is none.
func one(a *asked, f timeline.Filter) (*timeline.Row, error) {
	rows, err := listed(a, f)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[len(rows)-1], nil
}

// read adds the value.
func (o *stateOfSetting) read(a *asked) error {
	return a.client.Entries(a.ctx, timeline.Filter{Index: &o.Last.Index}, func(e timeline.Entry) error {
		o.Unknown, o.Gone = e.Missing || e.Unsound, len(e.After) == 0
		if len(e.After) > 0 {
			o.Value = textOf(e.Index, "after", e.After)
		}
		return nil
	})
}

// neighbours finds the entries with a state before and after.
func (s *states) neighbours(a *asked) error {
	f := timeline.Filter{States: true, Project: s.Project, Environment: s.Environment}
	f.Before, f.Limit = &s.Entry, 1
	row, err := one(a, f)
	if err != nil {
		return err
	}
	if row != nil {
		s.Former = &row.Index
	}
	f.Before, f.Limit, f.From = nil, 0, new(s.Entry+1)
	rows, _, err := oldest(a, f)
	if err == nil && len(rows) > 0 {
		s.Latter = &rows[0].Index
	}
	return err
}
