// Package compose checks the compose file. It has no part in a release, and stands apart so that its test need
// not compile all of that.
package compose

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

func require(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestComposeFile reads the compose file as docker compose does, and looks for the files that it mounts.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"../../compose/compose.yaml"}, cli.WithProfiles([]string{"monitoring"}), cli.WithName("auditrelay"), cli.WithEnv([]string{
		"WORKSPACE_KEY_ID=a", "WORKSPACE_KEY_SECRET=b", "ADMIN_TOKEN=0123456789abcdef",
	}))
	require(t, err)
	project, err := options.LoadProject(t.Context())
	require(t, err)
	if len(project.Services) != 3 {
		t.Errorf("there are %d services", len(project.Services))
	}
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			if volume.Type != "bind" || filepath.Base(volume.Source) == "relay.yaml" { // a person writes that one
				continue
			}
			if _, err := os.Stat(volume.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
	}

	options, err = cli.NewProjectOptions([]string{"../../compose/compose.yaml"}, cli.WithName("auditrelay"))
	require(t, err)
	if _, err := options.LoadProject(t.Context()); err == nil {
		t.Error("the file is taken without the keys of the workspace")
	}
}
