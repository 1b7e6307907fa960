package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
)

// configVariable names the configuration where --config is not given.
const configVariable = "AUDITRELAY_CONFIG"

var (
	errNoConfig = errors.New("no configuration is named; give --config FILE, or set " + configVariable)
	errNoRelay  = errors.New("no relay is named; give --config FILE or --data-dir DIR, or set " + configVariable)
)

// addConfigFlag adds --config. Its default comes from the environment.
func addConfigFlag(cmd *cobra.Command, file *string, usage string) {
	cmd.Flags().StringVarP(file, "config", "c", "", usage+" (default $"+configVariable+")")
	*file = os.Getenv(configVariable)
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
