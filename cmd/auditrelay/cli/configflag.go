package cli

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

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
