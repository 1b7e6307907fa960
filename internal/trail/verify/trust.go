package verify

import (
	"context"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Trust is whom written proofs are to be verified with.
type Trust struct {
	Text   []byte // of a file trail.policy
	Policy proof.Policy
	own    bool // it has the keys that the logs name themselves
}

// OwnTrust names the trail's own keys, and witnesses.
func OwnTrust(prover *Prover, witnesses []proof.Witness, quorum int) (t Trust, err error) {
	var logs []proof.Log
	for _, key := range prover.Keys() {
		logs = append(logs, proof.Log{Key: key})
	}
	t.own = true
	text := proof.PolicyText(logs, witnesses, quorum)
	if t.Policy, err = proof.ParsePolicy(text); err != nil {
		return t, fmt.Errorf("make trail.policy: %w", err)
	}
	t.Text = []byte("# The keys that the trail itself names: compare them with ones known by another way.\n" + text)
	return t, nil
}

// Prove proves an entry, and verifies the proof with whom it is to be verified with.
func (t Trust) Prove(ctx context.Context, prover *Prover, index int64) (Proven, error) {
	made, err := prover.Prove(ctx, index)
	if err != nil {
		return made, err
	}
	own, err := PolicyFor(t.Policy, made.Origin)
	if err == nil {
		_, _, err = made.Proof.Verify(made.Leaf, own)
	}
	if err != nil && t.own && made.unnamed {
		err = fmt.Errorf("%w; it names no key in %s: give --key or --policy", err, proof.HistoryFile)
	}
	if err != nil {
		return made, fmt.Errorf("prove entry %d: %w", index, err)
	}
	return made, nil
}
