package web

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

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
