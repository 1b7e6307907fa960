package cli

import (
	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/console"
)

// relayFlags name the running relay for a command.
type relayFlags struct{ config, dataDir string }

const whichRelay = `
It asks the running relay on this machine, through the socket in its data directory.
Name the directory with --data-dir, or the relay's configuration with --config.`

func (f *relayFlags) addTo(cmd *cobra.Command) {
	addConfigFlag(cmd, &f.config, "the running relay's configuration `FILE`; only data_dir is read")
	addDirFlag(cmd, &f.dataDir, &f.config, "the running relay's data `DIR`")
}

func (f *relayFlags) client() (*console.Client, error) {
	dir := f.dataDir
	if dir == "" {
		var err error
		if dir, err = config.DataDir(f.config); err != nil {
			return nil, err
		}
	}
	client := console.NewClient(dir)
	client.Person = thisPerson()
	return client, nil
}
