package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// cached makes the folder dir with what fill puts into it, once: it is there
// whole or not at all, whatever is interrupted.
func (s *session) cached(ctx context.Context, dir string, fill func(ctx context.Context, into string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	into, err := os.MkdirTemp(filepath.Dir(dir), "part-")
	if err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(into) }() // it is gone once it was renamed
	if err := fill(ctx, into); err != nil {
		return err
	}
	if err := os.Rename(into, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("put %s into the cache: %w", filepath.Base(dir), err)
	}
	return nil
}

// build runs a program that fetches or builds a server, for --build at most,
// and shows what it is at. Its failure is a *skip: it is no fault of the relay.
func (s *session) build(ctx context.Context, dir string, args ...string) error {
	timed, cancel := context.WithTimeout(ctx, s.flags.build)
	defer cancel()
	cmd := exec.CommandContext(timed, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	shown := &lastLines{show: func(line string) { s.say("    %s", line) }}
	cmd.Stdout, cmd.Stderr = shown, shown
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case timed.Err() != nil:
		return &skip{fmt.Sprintf("%s did not end within %s, see --build", filepath.Base(args[0]), s.flags.build)}
	}
	return &skip{fmt.Sprintf("%s failed (%v): %s", filepath.Base(args[0]), err, shown.tail())}
}

// lastLines shows a line of what is written to it every few seconds, and keeps
// the last ones.
type lastLines struct {
	show func(line string)

	mu    sync.Mutex // guards what follows
	part  []byte     // of a line
	lines []string
	shown time.Time
}

// Write implements io.Writer.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, found := bytes.Cut(l.part, []byte{'\n'})
		if !found {
			return len(p), nil
		}
		l.part = rest
		l.add(string(bytes.TrimSpace(line)))
	}
}

// add takes a line. The caller holds l.mu.
func (l *lastLines) add(line string) {
	const kept = 12
	if line == "" {
		return
	}
	l.lines = append(l.lines, line)
	l.lines = l.lines[max(0, len(l.lines)-kept):]
	if time.Since(l.shown) >= report {
		l.shown = time.Now()
		l.show(line)
	}
}

// tail gives the last lines.
func (l *lastLines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
