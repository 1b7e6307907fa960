package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const relayPackage = "github.com/auditrelay/auditrelay/cmd/auditrelay"

// ClockBuild is a build of the relay with a movable clock. It is made while other things are
// played, since with another time.Now everything is compiled again.
type ClockBuild struct {
	done chan struct{}
	path string // valid once done is closed
	err  error  // likewise
}

// NoClockError says why no relay with a movable clock can be built here.
type NoClockError struct{ Reason string }

func (e *NoClockError) Error() string { return e.Reason }

// BuildWithClock begins to build a relay from the sources in the working directory, into a folder.
// [ClockAhead] and [ClockBack] are the signals that move its wall clock by an hour, and [AtClock]
// says where it starts.
func BuildWithClock(ctx context.Context, dir string) *ClockBuild {
	b := &ClockBuild{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.path, b.err = buildWithClock(ctx, dir)
	}()
	return b
}

// Wait returns the built relay's file. The error is a [NoClockError] if there is no Go, no sources,
// or another time.Now than the one that can be moved.
func (b *ClockBuild) Wait(ctx context.Context) (path string, err error) {
	select {
	case <-b.done:
		return b.path, b.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// buildWithClock builds the relay with a standard library whose wall clock has an offset. The
// product's own sources know nothing of it: for this build, files replace some of them and are
// added to them.
func buildWithClock(ctx context.Context, dir string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", &NoClockError{"Go is not installed, which builds a relay whose clock can be moved"}
	}
	sources, err := goSays(ctx, "list", "-f", "{{.Dir}}", relayPackage)
	if err != nil {
		return "", &NoClockError{"the relay's sources are not here, to build one whose clock can be moved: " + err.Error()}
	}
	root, err := goSays(ctx, "env", "GOROOT")
	if err != nil {
		return "", &NoClockError{"the standard library's sources are not here: " + err.Error()}
	}
	overlay, err := writeOverlay(dir, filepath.Join(root, "src", "time"), sources)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "auditrelay-clock")
	// It compiles one package at a time, since other things run meanwhile.
	_, err = goSays(ctx, "build", "-trimpath", "-p", "1", "-overlay", overlay, "-o", path, relayPackage)
	return path, err
}

// goSays runs the go command, and returns its output.
func goSays(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// writeOverlay writes the files of the build, and the list of their places: timeDir is
// the folder of the standard library's package, mainDir the relay's.
func writeOverlay(dir, timeDir, mainDir string) (list string, err error) {
	original, err := os.ReadFile(filepath.Join(timeDir, "time.go"))
	if err != nil {
		return "", &NoClockError{"the standard library's sources are not here: " + err.Error()}
	}
	moved, ok := withOffset(string(original))
	if !ok {
		return "", &NoClockError{"this Go's time.Now is not the one that can be given an offset"}
	}
	replace := map[string]string{}
	for name, file := range map[string]struct{ target, text string }{
		"time.go":   {filepath.Join(timeDir, "time.go"), moved},
		"offset.go": {filepath.Join(timeDir, "rig_offset.go"), offsetSource},
		"main.go":   {filepath.Join(mainDir, "rig_clock.go"), signalSource},
	} {
		replace[file.target] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[file.target], []byte(file.text), 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// withOffset gives time.Now the offset. The monotonic clock stays as it is, as
// it does when a machine's clock is set.
func withOffset(source string) (string, bool) {
	const reads = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(source, reads) != 1 {
		return "", false
	}
	return strings.Replace(source, reads, reads+"\tsec += RigOffset.Load()\n", 1), true
}

// offsetSource is added to the package of time.go.
const offsetSource = `package time

import "sync/atomic"

// RigOffset is how many seconds the wall clock is ahead.
var RigOffset atomic.Int64
`

// ClockAhead and ClockBack move the clock of such a relay by an hour. SIGUSR2 is none of them, since
// it replaces the relay's process.
const (
	ClockAhead = syscall.SIGUSR1
	ClockBack  = syscall.SIGVTALRM
)

const clockVariable = "AUDITRELAY_RIG_CLOCK"

// AtClock is what the environment of such a relay has for a clock that is so far ahead at its start.
func AtClock(ahead time.Duration) string {
	return clockVariable + "=" + strconv.FormatInt(int64(ahead/time.Second), 10)
}

// signalSource is added to the package of the relay's main.go: signals move the clock by an
// hour.
const signalSource = `package main

import (
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func init() {
	seconds, _ := strconv.ParseInt(os.Getenv("` + clockVariable + `"), 10, 64)
	time.RigOffset.Store(seconds)
	jumps := make(chan os.Signal, 8)
	signal.Notify(jumps, syscall.SIGUSR1, syscall.SIGVTALRM) // ClockAhead and ClockBack
	go func() {
		for s := range jumps {
			if s == syscall.SIGUSR1 {
				time.RigOffset.Add(3600)
			} else {
				time.RigOffset.Add(-3600)
			}
		}
	}()
}
`
