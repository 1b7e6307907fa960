// Package cli is the command auditrelay, for Go programs with sinks of their own.
//
// A [Program] with a kind of sink (see [sinks.NewKind]) is the whole product, with this
// kind in addition to the built-in ones: run, config check, sinks check and all other commands
// know its section of the configuration. config check shows the warnings of the section
// (see config.Warner), run logs them, and the private listener serves the metrics of its
// sinks (see [sinks.Register]). The example is such a program.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/sinks"
)

// Program is the command auditrelay.
type Program struct {
	// Version is the program's version. Default: the one recorded by the Go toolchain.
	Version string
	// Kinds are sinks of the program's own, in addition to the built-in ones.
	Kinds sinks.Kinds
}

// The exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1 // the command was understood, and failed
	// ExitUsage: the command line is wrong (EX_USAGE of sysexits).
	ExitUsage = 64
	// ExitTrouble is of `status` and `streaming`: something is wrong, or would change.
	ExitTrouble = 2
	// ExitNotShown is of `trail verify`: nothing is wrong, and not all was shown. It is also
	// of `routing try`: the sink would not get all events.
	ExitNotShown = 3
)

// Main runs the process's command line and ends the process. The first SIGINT or
// SIGTERM ends a command cleanly.
func (p Program) Main() {
	// Restoring the default lets a second signal end the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(p.Execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Execute runs one command line, without the program's name, and returns the exit
// code. `run` ends cleanly when ctx does.
func (p Program) Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := p.newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	var end ending
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &end):
		return int(end)
	case errors.As(err, new(failure)):
		_, _ = fmt.Fprintf(stderr, "auditrelay: %s\n", harmless(err))
		return ExitFailure
	default:
		_, _ = fmt.Fprintf(stderr, "auditrelay: %s\nSee '%s --help'.\n", harmless(err), command.CommandPath())
		return ExitUsage
	}
}

// harmless is the text of an error for the terminal: it may quote a peer, such as a relay that is being
// verified. Its lines stay.
func harmless(err error) string {
	return plaintext.Escape([]byte(err.Error()), func(rune) string { return "·" })
}
