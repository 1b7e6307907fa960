package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

// ending ends a command with an exit code, after it has printed the reason.
type ending int

const (
	errReported = ending(ExitFailure)  // it failed
	errTrouble  = ending(ExitTrouble)  // something is wrong, or differs
	errNotShown = ending(ExitNotShown) // nothing is known to be wrong, but something is not shown
)

func (e ending) Error() string { return fmt.Sprintf("exit code %d, as reported", int(e)) }

// when ends the command if something is so.
func (e ending) when(so bool) error {
	if so {
		return e
	}
	return nil
}

// A failure is an error of a well-formed command; cobra's own errors are errors of usage.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// misuse is an error of usage that a command finds when it runs.
type misuse struct{ error }

// markFailures marks what the commands return as failures, except for misuse.
func markFailures(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		markFailures(sub)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err == nil || errors.As(err, new(misuse)) || errors.Is(err, console.ErrRequest) {
			return err
		}
		return failure{err}
	}
}

// group is a command that has only the given subcommands.
func group(path string, commands ...*cobra.Command) *cobra.Command {
	return under(described(path), commands...)
}

func under(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = subcommands, showHelp
	cmd.AddCommand(commands...)
	return cmd
}

// takes are the arguments of a command.
type takes cobra.PositionalArgs

func (t takes) addTo(cmd *cobra.Command) { cmd.Args = cobra.PositionalArgs(t) }

// exactly n arguments have to be given; want says which.
func exactly(n int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return errors.New("give " + want)
		}
		return nil
	}
}

// source is what a command asks: a running relay, its files, or a trail.
type source[S any] interface {
	flagged
	// about is a paragraph of the help on what is asked, and how to name it. It may be empty.
	about() string
	// open gives what to ask. A command closes it, if it can be closed.
	open(cmd *cobra.Command) (S, error)
}

// ask opens a source for use.
func ask[S any](cmd *cobra.Command, of source[S], use func(S) error) error {
	s, err := of.open(cmd)
	if err != nil {
		return err
	}
	if c, ok := any(s).(io.Closer); ok {
		defer func() { _ = c.Close() }() // it was only read
	}
	return use(s)
}

// command is the one that the help has at path: what it asks, what it does with it, and its flags.
// It takes no arguments, unless one of the flags is takes.
func command[S any](path string, of source[S], run func(cmd *cobra.Command, args []string, s S) error, flags ...flagged) *cobra.Command {
	return complete(described(path), of, run, flags...)
}

// complete is command with a description from elsewhere. The help tells of the source before the
// exit codes.
func complete[S any](cmd *cobra.Command, of source[S], run func(cmd *cobra.Command, args []string, s S) error, flags ...flagged) *cobra.Command {
	if about := of.about(); about != "" {
		cmd.Long = strings.Replace(cmd.Long, "\n\nExit codes: ", "\n"+about+"\n\nExit codes: ", 1)
	}
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ask(cmd, of, func(s S) error { return run(cmd, args, s) })
	}
	of.addTo(cmd)
	return withFlags(cmd, flags...)
}

func withFlags(cmd *cobra.Command, flags ...flagged) *cobra.Command {
	for _, f := range flags {
		f.addTo(cmd)
	}
	return cmd
}

// alone is the source of commands that ask nobody, or find it by themselves; it is about that.
type alone string

func (a alone) about() string                      { return string(a) }
func (alone) addTo(*cobra.Command)                 {}
func (a alone) open(*cobra.Command) (alone, error) { return a, nil }

// question is a command that asks once, and prints the answer as JSON or for people: also one that
// comes with an ending.
func question[S, T any](path string, of source[S], output outputFlag, ask func(*cobra.Command, S, []string) (T, error), people func(*page, T), flags ...flagged) *cobra.Command {
	return command(path, of, func(cmd *cobra.Command, args []string, s S) error {
		answer, ends := ask(cmd, s, args)
		if ends != nil && !errors.As(ends, new(ending)) {
			return ends
		}
		if err := printAs(cmd.OutOrStdout(), output.isJSON(), answer, people); err != nil {
			return err
		}
		return ends
	}, append(flags, &output)...)
}

// listOf is a question to the relay without further words.
func listOf[T any](ask func(*console.Client, context.Context) (T, error)) func(*cobra.Command, *console.Client, []string) (T, error) {
	return func(cmd *cobra.Command, client *console.Client, _ []string) (T, error) {
		return ask(client, cmd.Context())
	}
}

// printAs prints v as JSON, or for people.
func printAs[T any](w io.Writer, asJSON bool, v T, people func(*page, T)) error {
	if asJSON {
		return printJSON(w, v)
	}
	return show(w, v, people)
}

// show prints v for people.
func show[T any](w io.Writer, v T, people func(*page, T)) error {
	p := newPage(w)
	people(p, v)
	return p.end()
}

// say prints a line for people.
func say(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format+"\n", args...)
	return err
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// page is a text for people, with tables whose cells are aligned. It is printed at its end.
type page struct {
	to    io.Writer
	width int
	text  bytes.Buffer
	table *tabwriter.Writer
}

func newPage(to io.Writer) *page {
	p := &page{to: to, width: tableWidth(to)}
	p.table = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	return p
}

// row adds a row to the table.
func (p *page) row(cells ...any) {
	_, _ = fmt.Fprintf(p.table, strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...)
}

// field adds a name with a value, unless the value is empty.
func (p *page) field(name, value string) {
	if value != "" {
		p.row(name, printable(value))
	}
}

// line ends the table, and adds a text as it is.
func (p *page) line(format string, args ...any) {
	_ = p.table.Flush() // into memory
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// end prints the page.
func (p *page) end() error {
	_ = p.table.Flush() // into memory
	_, err := p.to.Write(p.text.Bytes())
	return err
}
