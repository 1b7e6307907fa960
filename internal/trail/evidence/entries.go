// Package evidence writes entries of the audit trail, and their proofs, in the forms that are handed
// to others.
package evidence

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

// Source gives whole entries: a running relay, or the files of a stopped one.
type Source interface {
	// Entries calls yield with those that a filter chooses, the oldest first.
	Entries(ctx context.Context, f timeline.Filter, yield func(timeline.Entry) error) error
}

// FormCSV is the form of [Write] with a line of CSV for each entry.
const FormCSV = "csv"

// Write writes the readable entries that a filter chooses, as JSON lines or as CSV,
// and counts them.
func Write(ctx context.Context, w io.Writer, source Source, filter timeline.Filter, form string) (count int, err error) {
	write := func(e timeline.Entry) error { return json.NewEncoder(w).Encode(e) }
	if form == FormCSV {
		write = CSV(w)
	}
	err = source.Entries(ctx, filter, func(e timeline.Entry) error {
		if e.Missing {
			return nil
		}
		count++
		return write(e)
	})
	return count, err
}

// Cell is a text for CSV, without steering characters. A spreadsheet would run a text beginning like a formula, so
// an apostrophe stands before it.
func Cell(text string) string {
	if text = plaintext.Replace(text, '·'); strings.IndexAny(strings.TrimSpace(text), "=+-@＝＋－＠") == 0 {
		return "'" + text
	}
	return text
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// Lines prints lines of CSV (RFC 4180), below a header.
func Lines(w io.Writer, header ...string) func(lines ...[]string) error {
	out, first := csv.NewWriter(w), true
	return func(lines ...[]string) error {
		if first {
			first, lines = false, append([][]string{header}, lines...)
		}
		return out.WriteAll(lines)
	}
}

// CSV prints entries as CSV. New columns come last.
func CSV(w io.Writer) func(timeline.Entry) error {
	out := Lines(w, "index", "time", "type", "project", "environment", "setting", "severity", "direction", "cause", "reviewed", "summary",
		"actor", "window_after", "window_until", "before", "after")
	return func(e timeline.Entry) error {
		after, until := "", ""
		if e.Window != nil {
			after, until = timeText(e.Window.After), timeText(e.Window.Until)
		}
		return out([]string{
			strconv.FormatInt(e.Index, 10), timeText(e.Time), Cell(e.Type), Cell(e.Project), Cell(e.Environment), Cell(e.Setting),
			e.Severity, e.Direction, Cell(e.Cause), strconv.FormatBool(e.Reviewed), Cell(e.Summary),
			Cell(e.Actor), after, until, Cell(plaintext.JSON(e.Before)), Cell(plaintext.JSON(e.After)),
		})
	}
}
