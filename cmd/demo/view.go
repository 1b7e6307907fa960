package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// watch plays the scene until ctx ends, and shows it: redrawn in place in a
// terminal, a line every two seconds elsewhere.
func watch(ctx context.Context, s *stage, out *os.File) {
	s.sim.Start(context.WithoutCancel(ctx))
	var changing sync.WaitGroup
	changing.Go(func() { s.play(ctx) })
	defer changing.Wait()
	v := &view{stage: s, out: out, start: time.Now()}
	every := 2 * time.Second
	if term.IsTerminal(int(out.Fd())) {
		v.terminal, every = true, 500*time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.show(ctx)
		case <-ctx.Done():
			return
		}
	}
}

type view struct {
	stage    *stage
	out      *os.File
	terminal bool
	start    time.Time
	drawn    int // lines on the terminal, to be replaced by the next drawing
}

func (v *view) show(ctx context.Context) {
	counts := v.stage.sim.Counts()
	var sinks, rows []string
	for _, d := range v.stage.destinations() {
		n, err := d.Count(ctx)
		if err != nil {
			continue // ctx has ended, or the next look will tell
		}
		behind := max(0, int64(counts.Acknowledged)-n)
		sinks = append(sinks, fmt.Sprintf("%s %d (behind %d)", d.Name(), n, behind))
		rows = append(rows, fmt.Sprintf("  %-8s %12d   behind %d", d.Name(), n, behind))
	}
	elapsed := time.Since(v.start)
	if !v.terminal {
		fmt.Fprintf(v.out, "%4.0fs  generated %d  acknowledged %d  %s  changes %d\n", elapsed.Seconds(),
			counts.Generated, counts.Acknowledged, strings.Join(sinks, "  "), len(v.stage.sim.Changes()))
		return
	}
	lines := []string{
		fmt.Sprintf("%.0f s   generated %d   acknowledged %d   (%.0f/s)", elapsed.Seconds(), counts.Generated, counts.Acknowledged,
			float64(counts.Acknowledged)/elapsed.Seconds()),
		"",
		"delivered",
	}
	rows = append(rows, "  siem         is down: its events wait")
	lines = append(append(lines, rows...), "", "latest changes of settings")
	v.redraw(append(lines, v.changes()...), widthOf(v.out))
}

// widthOf is the width of a terminal.
func widthOf(terminal *os.File) int {
	if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// changes are the latest, as they came by webhook.
func (v *view) changes() (lines []string) {
	for _, e := range v.stage.inbox.changes() {
		where := strings.TrimSuffix(e.Project+"/"+e.Environment, "/")
		lines = append(lines, fmt.Sprintf("  %s %-8s %-8s %s", e.Time.Local().Format(time.TimeOnly), e.Detail.Severity, e.Detail.Direction, where),
			"           "+e.Detail.Summary)
	}
	return lines
}

// clip cuts a text to width characters, so that a line of the drawing stays one line.
func clip(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return string(runes[:max(0, width-1)]) + "…"
}

// redraw replaces the last drawing.
func (v *view) redraw(lines []string, width int) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	for _, l := range lines {
		b.WriteString("\x1b[2K" + clip(l, width) + "\n")
	}
	b.WriteString("\x1b[J")
	v.drawn = len(lines)
	fmt.Fprint(v.out, b.String())
}
