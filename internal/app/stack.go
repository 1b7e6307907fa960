package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// stack holds the started parts, to be stopped in the opposite order.
type stack struct {
	log   *slog.Logger
	steps []step
}

type step struct {
	name string
	stop func(ctx context.Context) error
}

// push adds a step to stop the part just started.
func (s *stack) push(name string, stop func(ctx context.Context) error) {
	s.steps = append(s.steps, step{name, stop})
}

// unwind stops everything, the newest first. All steps share ctx's deadline, and each
// is taken whether the ones before it succeeded or not: durable data is so already, and
// each must still give back its resources.
func (s *stack) unwind(ctx context.Context) error {
	var failed []error
	for i := len(s.steps) - 1; i >= 0; i-- {
		step := s.steps[i]
		start := time.Now()
		if err := step.stop(ctx); err != nil {
			failed = append(failed, fmt.Errorf("stop %s: %w", step.name, err))
		}
		s.log.Debug("stopped", "part", step.name, "took", time.Since(start).Round(time.Millisecond))
	}
	s.steps = nil
	return errors.Join(failed...)
}

// startAll starts parts, each on those before it.
func startAll(ctx context.Context, parts ...func(context.Context) error) error {
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// each calls do with what a channel gives, until ctx ends.
func each[T any](ctx context.Context, from <-chan T, do func(T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-from:
			do(one)
		}
	}
}

// background runs work in a goroutine of its own and returns its end: a step to cancel
// work's context and to wait for it, no longer than its own.
func background(work func(ctx context.Context)) (stop func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	return func(ctx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
