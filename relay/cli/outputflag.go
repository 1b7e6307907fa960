package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// addOutputFlag adds --output. The first form is the default.
func addOutputFlag(cmd *cobra.Command, f *outputFlag, forms ...string) {
	f.value, f.allowed = forms[0], forms
	cmd.Flags().VarP(f, "output", "o", "`FORM` of the output: "+strings.Join(forms, ", "))
}
