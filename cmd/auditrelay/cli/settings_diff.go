package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

func (p Program) newSettingsDiff() *cobra.Command {
	var where whereFlags
	output := forms("text", "json")
	var from, to timeFlag
	return command(&cobra.Command{
		Use:   "diff NAME --from TIME [--to TIME]",
		Short: "Show how a setting differs between two times",
		Long: `Compares the states of a setting at two times, as 'settings show' gives them: each
difference with a sentence, a severity, and whether the setting permits more or less.
Where one of the times lies in the window of a change, the state before it is compared, and
standard error says so.

Exit codes: 0 compared, 1 nothing is known of it at one of the times, or failed, 64 wrong usage.`,
		Example: `  auditrelay settings diff rbac_policy --config relay.yaml --environment production --from 2026-03-01 --to 2026-04-01
  auditrelay settings diff sms_country_codes --config relay.yaml --from "720h ago" --output json`,
		Args: oneSetting,
		PreRunE: func(*cobra.Command, []string) error {
			if !from.orNow().Before(to.orNow()) {
				return errors.New("--from must be before --to")
			}
			return nil
		},
	}, p.trail(), func(cmd *cobra.Command, args []string, source trailSource) error {
		states := make([]timeline.State, 2)
		for i, at := range []*timeFlag{&from, &to} {
			s, err := source.At(cmd.Context(), where.of(args[0]), at.orNow())
			if err != nil {
				return err
			}
			if !s.Known {
				return fmt.Errorf("nothing is known of %s at %s: the relay first looked later", s.Where, moment(s.At))
			}
			if s.Uncertain || len(s.Notes) > 0 {
				printSettingHead(cmd.ErrOrStderr(), s)
			}
			states[i] = s
		}
		return difference{args[0], states[0].Value, states[1].Value}.print(cmd.OutOrStdout(), output.value)
	}, &where, flagFunc(func(flags *pflag.FlagSet) {
		flags.Var(&from, "from", "the earlier time; "+timeFlagHelp)
		flags.Var(&to, "to", "the later time, likewise (default: now)")
	}), needed{"from"}, &output)
}
