package web

import (
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

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
	Error          string
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
