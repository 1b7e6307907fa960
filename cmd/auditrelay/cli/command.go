package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

// A failure is an error of a well-formed command; cobra's own errors are errors of usage.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

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
		if err == nil || errors.As(err, new(misuse)) {
			return err
		}
		return &failure{err}
	}
}

// group is a command with subcommands only.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	return under(&cobra.Command{Use: use, Short: short, Long: long}, commands...)
}

// under completes a command that has only the given subcommands.
func under(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = subcommands, showHelp
	cmd.AddCommand(commands...)
	return cmd
}

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
	// asks makes a command that asks it.
	asks(run func(cmd *cobra.Command, args []string, s S) error) func(*cobra.Command, []string) error
}

// command completes the description of a command: what it asks, what it does with it, and its
// flags. It takes no arguments, unless the description says which. The help tells of the source
// before the exit codes.
func command[S any](cmd *cobra.Command, of source[S], run func(cmd *cobra.Command, args []string, s S) error, flags ...flagged) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	if about := of.about(); !strings.Contains(cmd.Long, about) {
		cmd.Long = strings.Replace(cmd.Long, "\n\nExit codes: ", "\n"+about+"\n\nExit codes: ", 1)
	}
	of.addTo(cmd)
	for _, f := range flags {
		f.addTo(cmd)
	}
	cmd.RunE = of.asks(run)
	return cmd
}

// question is a command that asks once, and prints the answer as JSON or for people. after, where
// there is one, says how the command ends with an answer that was printed.
func question[S, T any](cmd *cobra.Command, of source[S], output outputFlag, ask func(*cobra.Command, S, []string) (T, error), people func(io.Writer, T) error, after ...func(T) error) *cobra.Command {
	return command(cmd, of, func(cmd *cobra.Command, args []string, s S) error {
		answer, err := ask(cmd, s, args)
		if err == nil {
			err = printAs(cmd.OutOrStdout(), output.isJSON(), answer, people)
		}
		for _, end := range after {
			if err == nil {
				err = end(answer)
			}
		}
		return err
	}, &output)
}

// listOf is a question to the relay without further words.
func listOf[T any](ask func(*console.Client, context.Context) (T, error)) func(*cobra.Command, *console.Client, []string) (T, error) {
	return func(cmd *cobra.Command, client *console.Client, _ []string) (T, error) {
		return ask(client, cmd.Context())
	}
}

// printAs prints v as JSON, or for people.
func printAs[T any](w io.Writer, asJSON bool, v T, people func(io.Writer, T) error) error {
	if asJSON {
		return printJSON(w, v)
	}
	return people(w, v)
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// flagged are flags of a command.
type flagged interface{ addTo(cmd *cobra.Command) }

// flagFunc adds flags that only one command has.
type flagFunc func(flags *pflag.FlagSet)

func (f flagFunc) addTo(cmd *cobra.Command) { f(cmd.Flags()) }

// needed are flags that have to be given.
type needed []string

func (n needed) addTo(cmd *cobra.Command) { needFlags(cmd, n...) }

// yesFlag is --yes of a command that asks first.
func yesFlag(yes *bool) flagFunc {
	return func(flags *pflag.FlagSet) { flags.BoolVarP(yes, "yes", "y", false, "do not ask") }
}

// dryRunFlag is --dry-run.
func dryRunFlag(dryRun *bool, about string) flagFunc {
	return func(flags *pflag.FlagSet) { flags.BoolVar(dryRun, "dry-run", false, about) }
}

// reasonFlag is --reason of a command that leaves an entry in the audit trail.
func reasonFlag(reason *string) flagFunc {
	return func(flags *pflag.FlagSet) {
		flags.StringVar(reason, "reason", "", "why, as the audit trail will show it: a `TEXT` or a ticket")
	}
}

// consentFlags are --yes and --reason of a command that changes the workspace. Without a
// question it wants the reason, except in a dry run.
type consentFlags struct {
	yes, dryRun bool
	reason      string
}

func (f *consentFlags) addTo(cmd *cobra.Command) {
	yesFlag(&f.yes).addTo(cmd)
	reasonFlag(&f.reason).addTo(cmd)
	before(cmd, func() error {
		if f.yes && !f.dryRun && strings.TrimSpace(f.reason) == "" {
			return errors.New("--yes needs --reason: nobody else says why in the audit trail")
		}
		return nil
	})
}

// outputFlag chooses a form of output: --output, or --json where there is one other form.
type outputFlag struct {
	value   string
	allowed []string
	about   string // of --json
}

// forms is --output with forms of which the first is the default.
func forms(all ...string) outputFlag { return outputFlag{value: all[0], allowed: all} }

// orJSON is --json.
func orJSON(about string) outputFlag { return outputFlag{about: about} }

func (f *outputFlag) isJSON() bool { return f.value == "json" }

func (f *outputFlag) addTo(cmd *cobra.Command) {
	if f.about == "" {
		cmd.Flags().VarP(f, "output", "o", "`FORM` of the output: "+strings.Join(f.allowed, ", "))
		return
	}
	cmd.Flags().BoolFunc("json", f.about, func(text string) error {
		on, err := strconv.ParseBool(text)
		f.value = map[bool]string{true: "json"}[on]
		return err
	})
}

func (f *outputFlag) String() string { return f.value }
func (f *outputFlag) Type() string   { return "FORM" }

// Set implements pflag.Value.
func (f *outputFlag) Set(value string) error {
	for _, form := range f.allowed {
		if form == value {
			f.value = value
			return nil
		}
	}
	return fmt.Errorf("it is one of %s", strings.Join(f.allowed, ", "))
}

// table aligns the cells of rows.
type table struct{ *tabwriter.Writer }

// newTable prints the titles.
func newTable(w io.Writer, titles ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(titles) > 0 {
		t.row(titles...)
	}
	return t
}

// row prints cells. The writer keeps an error for its Flush.
func (t table) row(cells ...any) {
	_, _ = fmt.Fprintf(t, strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...)
}

// field prints a name with a value, unless the value is empty.
func (t table) field(name, value string) {
	if value != "" {
		t.row(name, printable(value))
	}
}
