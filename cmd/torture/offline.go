package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/auditrelay/auditrelay/internal/datadir"
)

// inspect runs 'journal inspect' on the stopped relay's data.
func (s *scene) inspect(ctx context.Context) (datadir.Inspection, error) {
	var in datadir.Inspection
	return in, s.offline(ctx, &in, "journal", "inspect")
}

// verify runs 'journal verify' on the stopped relay's data.
func (s *scene) verify(ctx context.Context) (datadir.Verification, error) {
	var v datadir.Verification
	return v, s.offline(ctx, &v, "journal", "verify")
}

// offline runs a command on the stopped relay's data, and decodes its output. Findings,
// by its exit code, are no error.
func (s *scene) offline(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, s.binary, append(args, "--data-dir", s.dataDir, "--json")...)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if err != nil && (!errors.As(err, &failed) || len(failed.Stderr) > 0) {
		if failed != nil {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return fmt.Errorf("run %v: %w", args, err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("read what %v prints: %w", args, err)
	}
	return nil
}
