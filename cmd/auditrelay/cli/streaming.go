package cli

import "github.com/spf13/cobra"

func newStreaming() *cobra.Command {
	return under(&cobra.Command{
		Use:   "streaming",
		Short: "See, compare and set the environments' event log streaming config",
		Long: `The running relay keeps each environment's event log streaming config as its
configuration has it: 'status' shows how that stands, 'plan' compares the two field by
field, 'apply' sets the desired one now, and 'rotate' replaces a generated credential.

The API has no operation to create, enable or delete a streaming config. Where a person has
to do so in the dashboard, status and plan say it.`,
		Example: `  auditrelay streaming status --config relay.yaml
  auditrelay streaming plan shop/live --config relay.yaml
  auditrelay streaming apply shop/live --config relay.yaml --reason CHG-17`,
	}, newStreamingStatus(), newStreamingPlan(), newStreamingApply(), newRotate("streaming"))
}
