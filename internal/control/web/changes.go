package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/control/console"
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
