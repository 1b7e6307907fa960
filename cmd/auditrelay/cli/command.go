package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config"
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
	if about := of.about(); about != "" {
		cmd.Long = strings.Replace(cmd.Long, "\n\nExit codes: ", "\n"+about+"\n\nExit codes: ", 1)
	}
	cmd.RunE = of.asks(run)
	of.addTo(cmd)
	return withFlags(cmd, flags...)
}

func withFlags(cmd *cobra.Command, flags ...flagged) *cobra.Command {
	for _, f := range flags {
		f.addTo(cmd)
	}
	return cmd
}

// exits completes a help text by the exit codes. Wrong usage is one of every command.
func exits(codes, long string) string {
	return long + "\n\n" + strings.Join(wrap("Exit codes: "+codes+", 64 wrong usage.", 90), "\n")
}

// alone is the source of commands that ask nobody, or find it by themselves; it is about that.
type alone string

func (a alone) about() string      { return string(a) }
func (alone) addTo(*cobra.Command) {}

func (a alone) asks(run func(cmd *cobra.Command, args []string, a alone) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return run(cmd, args, a) }
}

// question is a command that asks once, and prints the answer as JSON or for people. after, where
// there is one, says how the command ends with an answer that was printed.
func question[S, T any](cmd *cobra.Command, of source[S], output outputFlag, ask func(*cobra.Command, S, []string) (T, error), people func(*page, T), after ...func(T) error) *cobra.Command {
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

// flagged are flags of a command.
type flagged interface{ addTo(cmd *cobra.Command) }

// flagFunc adds flags that only one command has.
type flagFunc func(flags *pflag.FlagSet)

func (f flagFunc) addTo(cmd *cobra.Command) { f(cmd.Flags()) }

// needed are flags that have to be given.
type needed []string

func (n needed) addTo(cmd *cobra.Command) { needFlags(cmd, n...) }

// onOff is a flag without a value.
func onOff(into *bool, name, about string) flagFunc {
	return func(flags *pflag.FlagSet) { flags.BoolVar(into, name, false, about) }
}

// text is a flag with a text, and texts one that may be repeated.
func text(into *string, name, about string) flagFunc {
	return func(flags *pflag.FlagSet) { flags.StringVar(into, name, "", about) }
}

func texts(into *[]string, name, about string) flagFunc {
	return func(flags *pflag.FlagSet) { flags.StringArrayVar(into, name, nil, about) }
}

// parsed is a flag with a value of its own kind.
func parsed(into pflag.Value, name, about string) flagFunc {
	return func(flags *pflag.FlagSet) { flags.Var(into, name, about) }
}

// yesFlag is --yes of a command that asks first.
func yesFlag(yes *bool) flagFunc {
	return func(flags *pflag.FlagSet) { flags.BoolVarP(yes, "yes", "y", false, "do not ask") }
}

// reasonFlag is --reason of a command that leaves an entry in the audit trail.
func reasonFlag(reason *string) flagFunc {
	return text(reason, "reason", "why, as the audit trail will show it: a `TEXT` or a ticket")
}

// check is a check of the flags together.
type check func() error

func (c check) addTo(cmd *cobra.Command) { before(cmd, c) }

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

const (
	// configVariable names the configuration where --config is not given.
	configVariable = "AUDITRELAY_CONFIG"
	// configPath is the configuration where neither is given.
	configPath = "/etc/auditrelay/relay.yaml"
)

var (
	errNoConfig = errors.New("no configuration is named; give --config FILE, or set " + configVariable + "; there is no " + configPath)
	errNoRelay  = errors.New("no relay is named; give --config FILE or --data-dir DIR, or set " + configVariable + "; there is no " + configPath)
)

// addConfigFlag adds --config. Its default comes from the environment, or is the usual file
// if there is one.
func addConfigFlag(cmd *cobra.Command, file *string, usage string) {
	cmd.Flags().StringVarP(file, "config", "c", "", usage+" (default $"+configVariable+", or "+configPath+")")
	*file = defaultConfig(os.Getenv(configVariable), configPath)
}

// defaultConfig returns the file named by the environment, or else the usual one. A usual
// file that may not be read is one: the command then says so.
func defaultConfig(named, usual string) string {
	if named != "" {
		return named
	}
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return usual
}

// needConfig makes a missing configuration wrong usage.
func needConfig(cmd *cobra.Command, file *string) {
	before(cmd, func() error {
		if *file == "" {
			return errNoConfig
		}
		return nil
	})
}

// configFlag is the source of commands that load a configuration.
type configFlag struct {
	kinds       config.Kinds
	file, usage string
}

func (p Program) configured() *configFlag {
	return &configFlag{kinds: p.Kinds.Config(), usage: "the configuration `FILE`"}
}

func (f *configFlag) about() string { return "" }

func (f *configFlag) addTo(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.file, f.usage)
	needConfig(cmd, &f.file)
}

// asks implements source.
func (f *configFlag) asks(run func(cmd *cobra.Command, args []string, cfg *config.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cfg, _, err := f.kinds.Load(f.file)
		if err != nil {
			return err
		}
		return run(cmd, args, cfg)
	}
}

// addDirFlag adds --data-dir, an alternative to --config.
func addDirFlag(cmd *cobra.Command, dir, file *string, usage string) {
	cmd.Flags().StringVar(dir, "data-dir", "", usage)
	cmd.MarkFlagsMutuallyExclusive("config", "data-dir")
	before(cmd, func() error {
		if *file == "" && *dir == "" {
			return errNoRelay
		}
		return nil
	})
}

// before has check run before cmd, and before its own checks.
func before(cmd *cobra.Command, check func() error) {
	own := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := check(); err != nil || own == nil {
			return err
		}
		return own(cmd, args)
	}
}

// needFlags makes a missing flag wrong usage.
func needFlags(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		_ = cmd.MarkFlagRequired(name) // fails only for an unknown flag
	}
}

// relayFlags name the running relay for a command.
type relayFlags struct{ config, dataDir string }

const whichRelay = `
It asks the running relay on this machine, through the socket in its data directory.
Name the directory with --data-dir, or the relay's configuration with --config.`

func (f *relayFlags) about() string { return whichRelay }

func (f *relayFlags) addTo(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.config, "the running relay's configuration `FILE`; only data_dir is read")
	addDirFlag(cmd, &f.dataDir, &f.config, "the running relay's data `DIR`")
}

// dir is the relay's data directory.
func (f *relayFlags) dir() (string, error) {
	if f.dataDir != "" {
		return f.dataDir, nil
	}
	return config.DataDir(f.config)
}

func (f *relayFlags) client() (*console.Client, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	client := console.NewClient(dir)
	client.Person = thisPerson()
	return client, nil
}

// asks makes a command that asks the relay.
func (f *relayFlags) asks(run func(cmd *cobra.Command, args []string, client *console.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, err := f.client()
		if err != nil {
			return err
		}
		return run(cmd, args, client)
	}
}
