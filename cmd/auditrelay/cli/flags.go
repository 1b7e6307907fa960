package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

// flagged are flags of a command.
type flagged interface{ addTo(cmd *cobra.Command) }

// flagFunc adds flags that only one command has.
type flagFunc func(flags *pflag.FlagSet)

func (f flagFunc) addTo(cmd *cobra.Command) { f(cmd.Flags()) }

// needed are flags that have to be given.
type needed []string

func (n needed) addTo(cmd *cobra.Command) {
	for _, name := range n {
		_ = cmd.MarkFlagRequired(name) // fails only for an unknown flag
	}
}

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
	json    bool
	allowed []string // empty for --json
	about   string
}

// forms is --output with forms of which the first is the default.
func forms(all ...string) outputFlag {
	return outputFlag{value: all[0], allowed: all, about: "`FORM` of the output: " + strings.Join(all, ", ")}
}

// orJSON is --json.
func orJSON(about string) outputFlag { return outputFlag{about: about} }

func (f *outputFlag) isJSON() bool { return f.json || f.value == "json" }

func (f *outputFlag) addTo(cmd *cobra.Command) {
	if len(f.allowed) > 0 {
		cmd.Flags().VarP(f, "output", "o", f.about)
		return
	}
	cmd.Flags().BoolVar(&f.json, "json", false, f.about)
}

func (f *outputFlag) String() string { return f.value }
func (f *outputFlag) Type() string   { return "FORM" }

// Set implements pflag.Value.
func (f *outputFlag) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("it is one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
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
	before(cmd, func() error {
		if f.file == "" {
			return errNoConfig
		}
		return nil
	})
}

func (f *configFlag) open(*cobra.Command) (*config.Config, error) {
	cfg, _, err := f.kinds.Load(f.file)
	return cfg, err
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

// relayFlags name the running relay for a command.
type relayFlags struct {
	config, dataDir string
	// aboutConfig and aboutDir are of commands that read the relay's files.
	aboutConfig, aboutDir string
}

const whichRelay = `
It asks the running relay on this machine, through the socket in its data directory.
Name the directory with --data-dir, or the relay's configuration with --config.`

func (f *relayFlags) about() string { return whichRelay }

func (f *relayFlags) addTo(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.config, cmp.Or(f.aboutConfig, "the running relay's configuration `FILE`; only data_dir is read"))
	withFlags(cmd, text(&f.dataDir, "data-dir", cmp.Or(f.aboutDir, "the running relay's data `DIR`")), check(func() error {
		if f.config == "" && f.dataDir == "" {
			return errNoRelay
		}
		return nil
	}))
	cmd.MarkFlagsMutuallyExclusive("config", "data-dir")
}

// dir is the relay's data directory.
func (f *relayFlags) dir() (string, error) {
	if f.dataDir != "" {
		return f.dataDir, nil
	}
	return config.DataDir(f.config)
}

func (f *relayFlags) open(*cobra.Command) (*console.Client, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	client := console.NewClient(dir)
	client.Person = thisPerson()
	return client, nil
}

// valueForms say what a flag of a type takes.
var valueForms = map[string]string{
	"duration": "how long, as 90s, 5m or 2h",
	"int":      "a whole number", "int64": "a whole number", "uint64": "a whole number",
	"float64": "a number", "bool": "true or false",
}

// flagError says what to write in place of a flag that is wrong. If the command before it is
// unknown, that is what it says: the flag may be right for the command that was meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		if cmd.HasSubCommands() {
			if wrong := subcommands(cmd, cmd.Flags().Args()); wrong != nil {
				return wrong
			}
		}
		if meant := flagsAsCommands(cmd).SuggestionsFor(unknown.GetSpecifiedName()); len(meant) > 0 {
			return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(meant, " or --"))
		}
	case errors.As(err, &invalid):
		if form := valueForms[invalid.GetFlag().Value.Type()]; form != "" {
			return fmt.Errorf("--%s %q: write %s", invalid.GetFlag().Name, invalid.GetValue(), form)
		}
	}
	return err
}

// flagsAsCommands has a command for each flag, so that flags are suggested as commands are.
func flagsAsCommands(cmd *cobra.Command) *cobra.Command {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		all.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	return all
}
