package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const relayPackage = "github.com/auditrelay/auditrelay/cmd/auditrelay"

// clockBuild is a build of the relay with a movable clock. It is made while the first scenarios
// run, since with another time.Now everything is compiled again.
type clockBuild struct {
	done chan struct{}
	path string // valid once done is closed
	err  error  // likewise; a *skip if it cannot be built here
}

func startClockBuild(ctx context.Context, dir string) *clockBuild {
	b := &clockBuild{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.path, b.err = buildWithClock(ctx, dir)
	}()
	return b
}

func (b *clockBuild) wait(ctx context.Context) (path string, err error) {
	select {
	case <-b.done:
		return b.path, b.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// buildWithClock builds the relay from the sources in the working directory, with a standard
// library whose wall clock has an offset. The product's own sources know nothing of it: for
// this build, files replace some of them and are added to them.
//
// If there is no Go, no sources, or another time.Now, the error is a *skip.
func buildWithClock(ctx context.Context, dir string) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", &skip{"Go is not installed, which builds a relay whose clock can be moved"}
	}
	sources, err := goSays(ctx, "list", "-f", "{{.Dir}}", relayPackage)
	if err != nil {
		return "", &skip{"the relay's sources are not here, to build one whose clock can be moved: " + err.Error()}
	}
	root, err := goSays(ctx, "env", "GOROOT")
	if err != nil {
		return "", &skip{"the standard library's sources are not here: " + err.Error()}
	}
	overlay, err := writeOverlay(dir, filepath.Join(root, "src", "time"), sources)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "auditrelay-clock")
	// It compiles one package at a time, since scenarios run meanwhile.
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
		return "", &skip{"the standard library's sources are not here: " + err.Error()}
	}
	moved, ok := withOffset(string(original))
	if !ok {
		return "", &skip{"this Go's time.Now is not the one that can be given an offset"}
	}
	replace := map[string]string{}
	for name, file := range map[string]struct{ target, text string }{
		"time.go":   {filepath.Join(timeDir, "time.go"), moved},
		"offset.go": {filepath.Join(timeDir, "torture_offset.go"), offsetSource},
		"main.go":   {filepath.Join(mainDir, "torture_clock.go"), signalSource},
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
	return strings.Replace(source, reads, reads+"\tsec += TortureOffset.Load()\n", 1), true
}

// offsetSource is added to the package of time.go.
const offsetSource = `package time

import "sync/atomic"

// TortureOffset is how many seconds the wall clock is ahead.
var TortureOffset atomic.Int64
`

// clockVariable is how far ahead a process's clock is at its start, in seconds.
const clockVariable = "AUDITRELAY_TORTURE_CLOCK"

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
	time.TortureOffset.Store(seconds)
	jumps := make(chan os.Signal, 8)
	signal.Notify(jumps, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range jumps {
			if s == syscall.SIGUSR1 {
				time.TortureOffset.Add(3600)
			} else {
				time.TortureOffset.Add(-3600)
			}
		}
	}()
}
`
