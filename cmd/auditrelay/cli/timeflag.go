package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// timeFlag is a point in time on the command line: RFC 3339, a local date with or without
// a time of day, or how long ago.
type timeFlag struct {
	time time.Time
	text string
}

const timeFlagHelp = "`TIME` is RFC 3339 (2026-11-03T08:30:00Z), local (2026-11-03, \"2026-11-03 08:30\"), or how long ago (90m, 7d, \"2h ago\")"

// localForms are the forms of a local time. A date alone is its first moment.
var localForms = []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"}

// Set implements pflag.Value.
func (f *timeFlag) Set(text string) error {
	f.text = text
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		f.time = t
		return nil
	}
	for _, form := range localForms {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil {
			f.time = t
			return nil
		}
	}
	d, err := lengthOf(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "ago")))
	if err != nil || d < 0 {
		return errors.New("write RFC 3339, as 2026-11-03T08:30:00Z, or how long ago, as 90m, 7d or \"48h ago\", or a local date, as 2026-11-03")
	}
	f.time = time.Now().Add(-d)
	return nil
}

// lengthOf reads a length of time: one of [time.ParseDuration], or whole days.
func lengthOf(text string) (time.Duration, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// String implements pflag.Value.
func (f *timeFlag) String() string { return f.text }

// Type implements pflag.Value.
func (f *timeFlag) Type() string { return "time" }
