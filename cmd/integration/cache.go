package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// cached makes the folder dir and lets fill fill it, once. The folder is there as a whole or
// not at all, whatever is interrupted.
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

// build runs a program to fetch or build a server, for --build at most, and shows its
// progress. Its failure is a *skip: it is no fault of the relay.
func (s *session) build(ctx context.Context, name string, args ...string) error {
	timed, cancel := context.WithTimeout(ctx, s.flags.build)
	defer cancel()
	start := time.Now()
	command := rig.Command{Name: name, Args: args, Dir: s.dir, Log: s.folder(name + ".log")}
	err := command.Run(timed, func(line string) { s.say("  %3.0fs: %s: %s", time.Since(start).Seconds(), name, line) })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case timed.Err() != nil:
		return &skip{fmt.Sprintf("%s did not end within %s, see --build", name, s.flags.build)}
	}
	return &skip{err.Error()}
}
