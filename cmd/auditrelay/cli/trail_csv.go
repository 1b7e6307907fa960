package cli

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// csvCell is a text for CSV. A spreadsheet would run a text beginning like a formula, so
// an apostrophe stands before it.
func csvCell(text string) string {
	if text = printable(text); strings.IndexAny(strings.TrimSpace(text), "=+-@＝＋－＠") == 0 {
		return "'" + text
	}
	return text
}

func csvTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// csvEntries prints entries as CSV (RFC 4180), with a header. New columns come last.
func csvEntries(w io.Writer) func(timeline.Entry) error {
	out, first := csv.NewWriter(w), true
	return func(e timeline.Entry) error {
		if first {
			first = false
			_ = out.Write([]string{
				"index", "time", "type", "project", "environment", "setting", "severity", "direction", "cause", "reviewed", "summary",
				"actor", "window_after", "window_until", "before", "after",
			})
		}
		after, until := "", ""
		if e.Window != nil {
			after, until = csvTime(e.Window.After), csvTime(e.Window.Until)
		}
		_ = out.Write([]string{
			strconv.FormatInt(e.Index, 10), csvTime(e.Time), csvCell(e.Type), csvCell(e.Project), csvCell(e.Environment), csvCell(e.Setting),
			e.Severity, e.Direction, csvCell(e.Cause), strconv.FormatBool(e.Reviewed), csvCell(e.Summary),
			csvCell(e.Actor), after, until, csvCell(escaped(e.Before)), csvCell(escaped(e.After)),
		})
		out.Flush()
		return out.Error()
	}
}
