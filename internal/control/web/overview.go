package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// overview is the relay at a glance, by the sections of /status.
type overview struct {
	Environments []health.Status
	Sinks        []console.Sink
	Journal      *journal.Usage
	Changes      []timeline.Row
	// Unreadable says of sections why they cannot be shown.
	Unreadable []string
}

func overviewOf(a *asked) (any, error) {
	sections, err := a.client.Status(a.ctx)
	if err != nil {
		return nil, err
	}
	var o overview
	for name, into := range map[string]any{"environments": &o.Environments, "sinks": &o.Sinks, "journal": &o.Journal, "changes": &o.Changes} {
		if err := section(sections[name], into); err != nil {
			o.Unreadable = append(o.Unreadable, name+": "+err.Error())
		}
	}
	return o, nil
}

// section reads a section of /status. One that the relay cannot read has only its error.
func section(raw json.RawMessage, into any) error {
	var failed struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(raw, &failed) == nil && failed.Error != "" {
		return fmt.Errorf("%s", failed.Error)
	}
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// helpers are the functions of the templates.
var helpers = template.FuncMap{
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"at":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"length": length,
	"percent": func(part, whole int64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
	},
	"script": func(name string) (string, error) { return theScripts().path(name) },
	"rate":   func(perSecond float64) string { return fmt.Sprintf("%.2f/s", perSecond) },
}

// length is a number of seconds for people; nil is not known.
func length(seconds any) string {
	switch s := seconds.(type) {
	case float64:
		return time.Duration(s * float64(time.Second)).Round(time.Second).String()
	case *float64:
		if s != nil {
			return length(*s)
		}
	}
	return "–"
}
