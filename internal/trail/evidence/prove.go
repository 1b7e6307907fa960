package evidence

import (
	"context"
	"fmt"
	"strconv"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// Trust is whom written proofs are to be verified with.
type Trust struct {
	Text []byte // of a file trail.policy
	// Of gives the policy for a log, by its origin.
	Of func(origin string) (proof.Policy, error)
}

// OwnTrust names the trail's own keys, and witnesses.
func OwnTrust(prover *verify.Prover, witnesses []proof.Witness, quorum int) (t Trust, err error) {
	var logs []proof.Log
	for _, key := range prover.Keys() {
		logs = append(logs, proof.Log{Key: key})
	}
	text := proof.PolicyText(logs, witnesses, quorum)
	policy, err := proof.ParsePolicy(text)
	if err != nil {
		return t, fmt.Errorf("make trail.policy: %w", err)
	}
	t.Text = []byte("# The keys that the trail itself names: compare them with ones known by another way.\n" + text)
	t.Of = func(origin string) (proof.Policy, error) {
		key, err := prover.KeyOf(origin)
		if err != nil {
			return proof.Policy{}, err
		}
		return policy.WithLogs(proof.Log{Key: key})
	}
	return t, nil
}

// Witnesses are configured ones, with names of their own.
func Witnesses(configured []config.Witness) (list []proof.Witness) {
	for i, w := range configured {
		list = append(list, proof.Witness{Name: "witness-" + strconv.Itoa(i+1), Key: w.Key, URL: w.URL})
	}
	return list
}

// Prove proves an entry, and verifies the proof with whom it is to be verified with.
func Prove(ctx context.Context, prover *verify.Prover, trust Trust, index int64) (verify.Proven, error) {
	made, err := prover.Prove(ctx, index)
	if err != nil {
		return made, err
	}
	own, err := trust.Of(made.Origin)
	if err == nil {
		_, _, err = made.Proof.Verify(made.Leaf, own)
	}
	if err != nil {
		return made, fmt.Errorf("prove entry %d: %w", index, err)
	}
	return made, nil
}
