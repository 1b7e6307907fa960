package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

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
	s := screen{past: newPast()}
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
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		if err := w.show(&s); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := w.look(ctx, &s); err != nil && s.lost == "" {
			s.lost = "since " + time.Now().UTC().Format(time.TimeOnly) + ": " + err.Error()
		} else if err == nil {
			s.lost = ""
		}
	}
}

// look asks the relay.
func (w *watcher) look(ctx context.Context, s *screen) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sections, err := w.client.Status(ctx)
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
