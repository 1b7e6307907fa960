package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// trustFlags name whom a signature is taken from.
type trustFlags struct{ key, policy string }

// addTo adds the flags; when says what they are for.
func (f *trustFlags) addTo(cmd *cobra.Command, when string) {
	cmd.Flags().StringVar(&f.key, "key", "", "the log's verifier `KEY`, NAME+HASH+KEY, or a file with it"+when)
	cmd.Flags().StringVar(&f.policy, "policy", "", "a `FILE` with the trusted logs and witnesses (C2SP tlog-policy)"+when)
	cmd.MarkFlagsMutuallyExclusive("key", "policy")
}

// read gives the trust anchor; nil for none.
func (f *trustFlags) read() (*proof.Policy, error) {
	if f.policy != "" {
		text, err := os.ReadFile(f.policy)
		if err != nil {
			return nil, fmt.Errorf("read the policy: %w", err)
		}
		p, err := proof.ParsePolicy(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.policy, err)
		}
		return &p, nil
	}
	if f.key == "" {
		return nil, nil
	}
	key := f.key
	if text, err := os.ReadFile(key); err == nil {
		key = strings.TrimSpace(string(text))
	}
	p, err := proof.NewPolicy([]proof.Log{{Key: key}}, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	return &p, nil
}

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
	if f.given.policy == "" {
		t.text = []byte("log " + given.Logs[0].Key + "\nquorum none\n")
		return t, nil
	}
	if t.text, err = os.ReadFile(f.given.policy); err != nil {
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
