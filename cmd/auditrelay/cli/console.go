package cli

import (
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

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
