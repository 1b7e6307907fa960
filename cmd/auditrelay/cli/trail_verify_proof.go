package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// proven is the answer of --output json on one proof.
type proven struct {
	Origin    string   `json:"origin"`
	Index     int64    `json:"index"` // in its log
	Size      int64    `json:"size"`
	Key       string   `json:"key"`
	Witnesses []string `json:"witnesses,omitempty"`
}

// runProof verifies one proof, of the record in a file.
func (f *verifyFlags) runProof(cmd *cobra.Command, policy *proof.Policy) error {
	if policy == nil {
		return errors.New("a proof needs somebody to trust: give --key or --policy")
	}
	file, err := os.ReadFile(f.proof)
	if err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	record, err := os.ReadFile(f.record)
	if err != nil {
		return fmt.Errorf("read the record: %w", err)
	}
	p, err := proof.ParseProof(file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.proof, err)
	}
	own, err := verify.PolicyOf(*policy, p)
	if err != nil {
		return fmt.Errorf("%s: %w", f.proof, err)
	}
	c, by, err := p.Verify(proof.LeafHash(record), own)
	if err != nil {
		return fmt.Errorf("%s: %w", f.proof, err)
	}
	made := proven{Origin: c.Origin, Index: p.Index, Size: c.Size, Key: by.Log}
	for _, w := range by.Witnesses {
		made.Witnesses = append(made.Witnesses, w.Witness)
	}
	if f.output.isJSON() {
		return printJSON(cmd.OutOrStdout(), made)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is entry %d of the log %s, proven against its signed root over %d entries; cosigned by %d witnesses\n",
		f.record, p.Index, printable(c.Origin), c.Size, len(made.Witnesses))
	return err
}

// verifyStopped verifies the logs of a stopped relay, and its files for public tools.
func (f *verifyFlags) verifyStopped(ctx context.Context, o verify.Options) (verify.Report, error) {
	cfg, trail, err := f.openTrail(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	defer trail.Close()
	report, unnamed, err := audit.VerifyOffline(ctx, app.TrailOptions(cfg), trail)
	if err != nil {
		return verify.Report{}, err
	}
	return verify.Stopped(ctx, filepath.Join(cfg.DataDir, tiles.Dir), report, unnamed, o)
}
