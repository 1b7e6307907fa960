package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"

	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// verification is what 'journal verify' says, with each of its fields. An unknown field is an
// error, so that problems under another name are not overlooked.
type verification struct {
	Records  uint64 `json:"records"`
	Events   uint64 `json:"events"`
	Bytes    uint64 `json:"bytes"`
	Problems []struct {
		damage.Stretch
		What    string `json:"what"`
		Kept    string `json:"kept"`
		Advice  string `json:"advice"`
		Settled bool   `json:"settled"`
	} `json:"problems"`
}

// settled fails if a problem is left open.
func (v *verification) settled() error {
	for _, p := range v.Problems {
		if !p.Settled {
			return fmt.Errorf("a problem is left open: %+v", p)
		}
	}
	return nil
}

// verify runs 'journal verify' on the stopped relay's data. It is no error that its exit code
// reports findings.
func (s *scene) verify(ctx context.Context) (v verification, err error) {
	args := []string{"journal", "verify", "--data-dir", s.dataDir, "--json"}
	out, err := exec.CommandContext(ctx, s.binary, args...).Output()
	var failed *exec.ExitError
	if err != nil && (!errors.As(err, &failed) || len(failed.Stderr) > 0) {
		if failed != nil {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return v, fmt.Errorf("run %v: %w", args, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		return v, fmt.Errorf("read what %v prints: %w", args, err)
	}
	return v, nil
}
