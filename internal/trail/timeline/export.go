package timeline

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// Entries are whole entries: those of an [Index], or of a relay that is asked.
type Entries interface {
	// Entries calls yield with those that a filter chooses, the oldest first.
	Entries(ctx context.Context, f Filter, yield func(Entry) error) error
}

// FormCSV is the form of [Export] with a line of CSV for each entry.
const FormCSV = "csv"

// Export writes the readable entries that a filter chooses, as JSON lines or as CSV,
// and counts them.
func Export(ctx context.Context, w io.Writer, source Entries, filter Filter, form string) (count int, err error) {
	write := func(e Entry) error { return json.NewEncoder(w).Encode(e) }
	if form == FormCSV {
		write = CSV(w)
	}
	err = source.Entries(ctx, filter, func(e Entry) error {
		if e.Missing {
			return nil
		}
		count++
		return write(e)
	})
	return count, err
}

// CSVCell is a text for CSV, without steering characters. A spreadsheet would run a text beginning like a formula, so
// an apostrophe stands before it.
func CSVCell(text string) string {
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

// CSVLines prints lines of CSV (RFC 4180), below a header.
func CSVLines(w io.Writer, header ...string) func(lines ...[]string) error {
	out, first := csv.NewWriter(w), true
	return func(lines ...[]string) error {
		if first {
			first, lines = false, append([][]string{header}, lines...)
		}
		return out.WriteAll(lines)
	}
}

// CSV prints entries as CSV. New columns come last.
func CSV(w io.Writer) func(Entry) error {
	out := CSVLines(w, "index", "time", "type", "project", "environment", "setting", "severity", "direction", "cause", "reviewed", "summary",
		"actor", "window_after", "window_until", "before", "after")
	return func(e Entry) error {
		after, until := "", ""
		if e.Window != nil {
			after, until = timeText(e.Window.After), timeText(e.Window.Until)
		}
		return out([]string{
			strconv.FormatInt(e.Index, 10), timeText(e.Time), CSVCell(e.Type), CSVCell(e.Project), CSVCell(e.Environment), CSVCell(e.Setting),
			e.Severity, e.Direction, CSVCell(e.Cause), strconv.FormatBool(e.Reviewed), CSVCell(e.Summary),
			CSVCell(e.Actor), after, until, CSVCell(plaintext.JSON(e.Before)), CSVCell(plaintext.JSON(e.After)),
		})
	}
}
