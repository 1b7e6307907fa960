package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// ink is how a text is shown in a terminal: an SGR sequence, or nothing.
type ink string

// The inks.
const (
	inkPlain   ink = ""
	inkStrong  ink = "\x1b[1m"
	inkFaint   ink = "\x1b[2m"
	inkGood    ink = "\x1b[32m"
	inkWarning ink = "\x1b[33m"
	inkUnknown ink = "\x1b[36m"
	inkTrouble ink = "\x1b[1;31m"
	inkEnd         = "\x1b[0m"
)

// brush paints text, or leaves it plain. All text for the screen passes through it, so
// nothing else steers the terminal.
type brush struct{ colour bool }

func (b brush) paint(i ink, text string) string {
	text = printable(text)
	if !b.colour || i == inkPlain || strings.TrimSpace(text) == "" {
		return text
	}
	return string(i) + text + inkEnd
}

// colourFlag is --color.
type colourFlag struct{ when outputFlag }

func (f *colourFlag) addTo(cmd *cobra.Command) {
	f.when.value, f.when.allowed = "auto", []string{"auto", "always", "never"}
	cmd.Flags().Var(&f.when, "color", "`WHEN` to colour: auto, always, never; auto: in a terminal, unless $NO_COLOR is set")
}

// brush decides for an output; out is nil if it is no file.
func (f *colourFlag) brush(out *os.File) brush {
	switch f.when.value {
	case "always":
		return brush{true}
	case "never":
		return brush{}
	}
	// See https://no-color.org.
	return brush{isTerminal(out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(file *os.File) bool { return file != nil && term.IsTerminal(int(file.Fd())) }

// spanText is a length of time in seconds, for people: two units at most.
func spanText(seconds float64) string {
	switch s := int64(seconds); {
	case seconds < 0:
		return "0s"
	case seconds < 9.95:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", seconds), ".0") + "s"
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return pairText(s/60, "m", s%60, "s", s < 600)
	case s < 86400:
		return pairText(s/3600, "h", s%3600/60, "m", true)
	default:
		return pairText(s/86400, "d", s%86400/3600, "h", s < 10*86400)
	}
}

func pairText(n int64, unit string, rest int64, small string, both bool) string {
	if both && rest > 0 {
		return fmt.Sprintf("%d%s%d%s", n, unit, rest, small)
	}
	return fmt.Sprintf("%d%s", n, unit)
}

// numberText groups the digits of a number.
func numberText(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// rateText is a rate per second.
func rateText(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 100:
		return fmt.Sprintf("%.1f", perSecond)
	}
	return numberText(perSecond)
}
