package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build describes this binary; `version --json` prints it.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p Program) newVersion() *cobra.Command {
	output := orJSON("print JSON")
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the revision it was built from, and the Go version",
		Example: "  auditrelay version --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := p.build()
			if output.isJSON() {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), b)
			return err
		},
	}
	output.addTo(cmd)
	return cmd
}

func (p Program) build() build {
	b := build{Version: p.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String returns one line for people.
func (b build) String() string {
	text := "auditrelay " + b.Version
	if b.Revision != "" {
		text += " (" + b.Revision[:min(len(b.Revision), 12)]
		if b.Modified {
			text += ", modified"
		}
		text += ")"
	}
	return text + " " + b.Go + " " + b.Platform
}
