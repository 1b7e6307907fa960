package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// plainWidth is the width of a screen outside a terminal.
const plainWidth = 120

// statusCommand is `auditrelay status`.
type statusCommand struct {
	output   outputFlag
	colour   colourFlag
	watch    bool
	interval time.Duration
}

func newStatus() *cobra.Command {
	var c statusCommand
	c.output = forms("table", "json")
	cmd := command("status", &relayFlags{}, c.run, &c.output, &c.colour, flagFunc(func(flags *pflag.FlagSet) {
		flags.BoolVarP(&c.watch, "watch", "w", false, "go on until q or Ctrl-C")
		flags.DurationVar(&c.interval, "interval", time.Second, "`TIME` between two drawings")
	}))
	before(cmd, func() error { return c.check(cmd) })
	return cmd
}

func (c *statusCommand) check(cmd *cobra.Command) error {
	switch {
	case c.interval < 100*time.Millisecond:
		return fmt.Errorf("--interval %s: give 100ms or more", c.interval)
	case !c.watch && cmd.Flags().Changed("interval"):
		return errors.New("--interval needs --watch")
	case c.watch && c.output.value == "table" && !isTerminal(fileOf(cmd.OutOrStdout())):
		return errors.New("--watch needs a terminal; elsewhere, give --output json too")
	}
	return nil
}

func fileOf(w io.Writer) *os.File {
	file, _ := w.(*os.File)
	return file
}

func (c *statusCommand) run(cmd *cobra.Command, _ []string, client *console.Client) error {
	out := cmd.OutOrStdout()
	switch {
	case c.watch && c.output.isJSON():
		return c.follow(cmd.Context(), client, out)
	case c.watch:
		w := watcher{client: client, out: fileOf(out), keys: os.Stdin, brush: c.colour.brush(fileOf(out)), interval: c.interval}
		return w.run(cmd.Context())
	}
	sections, err := client.Status(cmd.Context(), console.AskStatus{})
	if err != nil {
		return err
	}
	s := screen{status: readStatus(sections)}
	if c.output.isJSON() {
		err = printStatusJSON(out, sections, true)
	} else {
		lines := s.draw(c.colour.brush(fileOf(out)), widthOf(fileOf(out)))
		_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
	}
	if err == nil && s.status.verdict().Verdict == console.Trouble {
		return errTrouble
	}
	return err
}

// follow prints a line of JSON each interval, until ctx ends.
func (c *statusCommand) follow(ctx context.Context, client *console.Client, out io.Writer) error {
	return every(ctx, c.interval, func() error {
		sections, err := client.Status(ctx, console.AskStatus{})
		if err == nil {
			err = printStatusJSON(out, sections, false)
		}
		if ctx.Err() != nil {
			err = nil // it is the wanted end
		}
		return err
	})
}

// every does something now and each interval, until it fails or ctx ends.
func every(ctx context.Context, interval time.Duration, do func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printStatusJSON completes the verdict.
func printStatusJSON(out io.Writer, sections map[string]json.RawMessage, pretty bool) error {
	s := readStatus(sections)
	raw, err := json.Marshal(s.verdict())
	if err == nil {
		sections["verdict"] = raw
		raw, err = json.Marshal(sections)
	}
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	text := string(raw)
	if pretty {
		text = indented(raw)
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func widthOf(file *os.File) int {
	if file != nil {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return plainWidth
}

// relayStatus is the part of /status for the screen.
type relayStatus struct {
	Verdict      console.Verdict
	Relay        app.About
	Ready        admin.Readiness
	Environments []health.Status
	Sinks        []console.Sink
	Journal      journal.Usage
	Streaming    []streaming.Health
	Workspace    *management.Reach // nil without a workspace
	Settings     []workspace.SettingStatus
	Changes      []timeline.Row
	Trail        struct {
		Entries int64  `json:"entries"`
		State   string `json:"state"`
	}
	// unreadable has the unreadable sections by name, with the reasons.
	unreadable map[string]string
}

// fight is the fight about an environment's streaming config, or nil.
func (s *relayStatus) fight(e *health.Status) *streaming.Fight {
	for i := range s.Streaming {
		if h := &s.Streaming[i]; h.Project == e.Project && h.Environment == e.Environment {
			return h.Fight
		}
	}
	return nil
}

// missed is about how many events a gap has lost, or will have if it ends now.
func missed(g *health.Gap) float64 {
	if g.Ended.IsZero() {
		return float64(max(0, g.EventsExpected-g.EventsLate))
	}
	return float64(g.EventsLost)
}

// readStatus reads the sections. One of a newer or older relay, or with an error, does not
// hide the others.
func readStatus(sections map[string]json.RawMessage) relayStatus {
	s := relayStatus{unreadable: map[string]string{}}
	for name, into := range map[string]any{
		"verdict": &s.Verdict, "relay": &s.Relay, "ready": &s.Ready, "environments": &s.Environments, "sinks": &s.Sinks, "journal": &s.Journal, "streaming": &s.Streaming,
		"workspace": &s.Workspace, "settings": &s.Settings, "changes": &s.Changes, "trail": &s.Trail,
	} {
		raw, found := sections[name]
		if !found {
			if !slices.Contains([]string{"workspace", "streaming", "settings", "changes"}, name) { // some relays have none
				s.unreadable[name] = "the relay's answer has none; is it of another version than this command?"
			}
			continue
		}
		if err := readSection(raw, into); err != nil {
			s.unreadable[name] = err.Error()
		}
	}
	if s.Relay.Now.IsZero() {
		s.Relay.Now = time.Now()
	}
	return s
}

// readSection reads a section of /status. One that the relay cannot read has only its error.
func readSection(raw json.RawMessage, into any) error {
	var failed struct {
		Error string `json:"error"`
		Known *bool  `json:"known"` // only the workspace has both
	}
	if json.Unmarshal(raw, &failed) == nil && failed.Error != "" && failed.Known == nil {
		return errors.New(failed.Error)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("this command does not understand it; is the relay of another version? %w", err)
	}
	return nil
}

// The terminal's control sequences. Between begin and end it keeps a screen of its own,
// without a cursor, and cuts long lines. Between hold and show it draws nothing, so
// nothing flickers; other terminals ignore these two.
const (
	screenBegin = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	screenEnd   = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	screenHold  = "\x1b[?2026h\x1b[H"
	screenShow  = "\x1b[J\x1b[?2026l"
	lineEnd     = "\x1b[K\r\n"
)

// watcher draws the screen again and again.
type watcher struct {
	client   *console.Client
	out      *os.File
	keys     *os.File // ends it by q, if it is a terminal
	brush    brush
	interval time.Duration
}

// run ends with ctx, or by a key. The relay has to answer at first; later it may be away.
func (w *watcher) run(ctx context.Context) error {
	var s screen
	if err := w.look(ctx, &s); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if isTerminal(w.keys) {
		// Raw, so a key needs no Enter. Ctrl-C is a key then, too.
		if before, err := term.MakeRaw(int(w.keys.Fd())); err == nil {
			defer func() { _ = term.Restore(int(w.keys.Fd()), before) }()
			go func() { defer stop(); untilQuit(w.keys) }()
		}
	}
	if _, err := w.out.WriteString(screenBegin); err != nil {
		return err
	}
	defer func() { _, _ = w.out.WriteString(screenEnd) }()
	looked := true
	return every(ctx, w.interval, func() error {
		if !looked {
			if err := w.look(ctx, &s); err == nil {
				s.lost = ""
			} else if s.lost == "" {
				s.lost = "since " + time.Now().UTC().Format(time.TimeOnly) + ": " + err.Error()
			}
		}
		looked = false
		return w.show(&s)
	})
}

// look asks the relay.
func (w *watcher) look(ctx context.Context, s *screen) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sections, err := w.client.Status(ctx, console.AskStatus{})
	if err != nil {
		return err
	}
	s.status = readStatus(sections)
	s.past.note(&s.status)
	return nil
}

// show draws the screen in one write.
func (w *watcher) show(s *screen) error {
	width, height, err := term.GetSize(int(w.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := fitHeight(s.draw(w.brush, width), height, w.brush)
	_, err = w.out.WriteString(screenHold + strings.Join(lines, lineEnd) + screenShow)
	return err
}

// fitHeight cuts the lines below the terminal's end, and says so in the last line.
func fitHeight(lines []string, height int, b brush) []string {
	hint := "q ends"
	if len(lines) >= height {
		lines = lines[:max(0, height-1)]
		hint = "there is more below: enlarge the terminal; q ends"
	}
	return append(lines, b.paint(inkFaint, hint)+"\x1b[K")
}

// untilQuit returns at q, Ctrl-C, Ctrl-D, or the end of the keys.
func untilQuit(keys *os.File) {
	buf := make([]byte, 64)
	for {
		n, err := keys.Read(buf)
		if err != nil || bytes.ContainsAny(buf[:n], "qQ\x03\x04") {
			return
		}
	}
}
