package web

import (
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
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

func (c *Console) overview(r *http.Request) any {
	var o overview
	sections := c.opts.Status(r.Context())
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		switch v := sections[name].(type) {
		case []health.Status:
			o.Environments = v
		case []console.Sink:
			o.Sinks = v
		case journal.Usage:
			o.Journal = &v
		case []timeline.Row:
			o.Changes = v
		case map[string]string: // a section that cannot be read has only its error
			o.Unreadable = append(o.Unreadable, name+": "+v["error"])
		}
	}
	return o
}

// helpers are the functions of the templates.
var helpers = template.FuncMap{
	"at":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"length": length,
	"percent": func(part, whole int64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
	},
	"rate": func(perSecond float64) string { return fmt.Sprintf("%.2f/s", perSecond) },
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
