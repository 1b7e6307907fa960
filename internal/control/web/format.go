package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// helpers are the functions of the templates.
var helpers = template.FuncMap{
	"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"unix":   func(t time.Time) int64 { return t.Unix() },
	"at":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"length": length,
	"percent": func(part, whole int64) string {
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
	},
	"rate":   rate,
	"spark":  sparkOf,
	"size":   size,
	"cut":    func(most int, text string) string { return marked(text, most) },
	"window": func(w *audit.Window) string { return w.Until.Sub(w.After).Round(time.Second).String() },
	"place": func(project, environment string) string {
		return strings.TrimSuffix(name(project)+"/"+name(environment), "/")
	},
	"name":  name,
	"short": timeline.ShortName,
	"add":   func(a, b int64) int64 { return a + b },

	"severities": timeline.Severities,
	"directions": timeline.Directions,
	"kinds":      kinds.All,
	"fields":     func() any { return filterFields },

	"readable":  readable,
	"difflines": diffLines,
	"script":    scriptPath,
}

// name bounds a name in a page, which may be of any length where it is an event's or the API's. The
// exports and the command line have the whole.
func name(text string) string { return marked(text, 200) }

// marked bounds a text in a page, and shows the characters that hide or reorder text by their numbers.
func marked(text string, most int) string {
	return plaintext.Escape([]byte(cut(strings.ToValidUTF8(text, "�"), most)), func(r rune) string { return fmt.Sprintf(`\u{%x}`, r) })
}

func rate(perSecond float64) string {
	if perSecond > 0 && perSecond < 1 {
		return fmt.Sprintf("%.1f/min", 60*perSecond)
	}
	return fmt.Sprintf("%.1f/s", perSecond)
}

// size is a number of bytes for people.
func size(n int64) string {
	units, v := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, float64(n)
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[0]
}

// length is a number of seconds for people; nil is not known.
func length(seconds any) string {
	switch s := seconds.(type) {
	case float64:
		d := time.Duration(s * float64(time.Second)).Round(time.Second)
		const day = 24 * time.Hour
		if d >= 2*day {
			return fmt.Sprintf("%d days", d/day)
		}
		return d.String()
	case *float64:
		if s != nil {
			return length(*s)
		}
	}
	return "–"
}
