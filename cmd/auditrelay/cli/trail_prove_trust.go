package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// trust is whom the written proofs are to be verified with.
type trust struct {
	text []byte // of trail.policy
	// of gives the policy for a log, by its origin.
	of func(origin string) (proof.Policy, error)
}

// trust reads the policy given, or makes one of the trail's own keys.
func (f *proveFlags) trust(cmd *cobra.Command, given *proof.Policy, prover *verify.Prover) (t trust, err error) {
	if given == nil {
		return f.ownTrust(cmd, prover)
	}
	t.of = func(origin string) (proof.Policy, error) { return verify.PolicyFor(*given, origin) }
	if f.policy == "" {
		t.text = []byte("log " + given.Logs[0].Key + "\nquorum none\n")
		return t, nil
	}
	if t.text, err = os.ReadFile(f.policy); err != nil {
		return t, fmt.Errorf("read the policy: %w", err)
	}
	return t, nil
}

// ownTrust names the trail's own keys, and the configured witnesses.
func (f *proveFlags) ownTrust(cmd *cobra.Command, prover *verify.Prover) (t trust, err error) {
	var witnesses []proof.Witness
	quorum := 0
	if f.configured(cmd) {
		if witnesses, quorum, err = configuredWitnesses(f.config); err != nil {
			return t, err
		}
	}
	var logs []proof.Log
	for _, key := range prover.Keys() {
		logs = append(logs, proof.Log{Key: key})
	}
	text := proof.PolicyText(logs, witnesses, quorum)
	policy, err := proof.ParsePolicy(text)
	if err != nil {
		return t, fmt.Errorf("make trail.policy: %w", err)
	}
	t.text = []byte("# The keys that the trail itself names: compare them with ones known by another way.\n" + text)
	t.of = func(origin string) (proof.Policy, error) {
		key, err := prover.KeyOf(origin)
		if err != nil {
			return proof.Policy{}, err
		}
		return policy.WithLogs(proof.Log{Key: key})
	}
	return t, nil
}

// configured: --config is of the relay whose trail is read. A default from the environment
// may be of another one than --url or --export.
func (f *proveFlags) configured(cmd *cobra.Command) bool {
	elsewhere := f.site.url != "" || f.export != "" || f.dataDir != ""
	return f.config != "" && (!elsewhere || cmd.Flags().Changed("config"))
}

func configuredWitnesses(file string) (list []proof.Witness, quorum int, err error) {
	configured, quorum, err := config.Witnesses(file)
	if err != nil {
		return nil, 0, err
	}
	for i, w := range configured {
		list = append(list, proof.Witness{Name: "witness-" + strconv.Itoa(i+1), Key: w.Key, URL: w.URL})
	}
	if len(list) > 0 && (quorum < 1 || quorum > len(list)) {
		return nil, 0, errors.New(file + ": audit.quorum is not between 1 and the number of audit.witnesses")
	}
	return list, quorum, nil
}
