// Command auditrelay keeps a workspace's event log and settings on record: see
// `auditrelay --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command was understood, and failed
	exitUsage   = 2 // the command line is wrong
)

func main() {
	// After the first signal the default behaviour is back: a second one ends the
	// process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	var failed *failure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case errors.As(err, &failed):
		_, _ = fmt.Fprintf(stderr, "auditrelay: %v\n", err)
		return exitFailure
	default:
		_, _ = fmt.Fprintf(stderr, "auditrelay: %v\nSee '%s --help'.\n", err, command.CommandPath())
		return exitUsage
	}
}
