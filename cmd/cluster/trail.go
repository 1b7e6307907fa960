package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// incomplete is the exit code of 'trail verify' for a trail that is the signed one and has gaps.
const incomplete = 3

// verify has the trail that a relay serves verified by the command, with the newest checkpoint that
// was seen before.
func (j *judge) verify(ctx context.Context, r *relayNode) error {
	token, err := os.ReadFile(r.dataDir() + "/admin.token")
	if err != nil {
		return err
	}
	// Who has just taken over the trail shows its files once they have come up to it.
	shown := func() bool {
		_, err := r.get(ctx, "/tlog/0/checkpoint")
		return err == nil
	}
	if err := j.until(ctx, r.name+" shows the trail's files", shown); err != nil {
		return err
	}
	args := []string{"trail", "verify", "--output", "json", "--url", "http://" + r.admin + "/tlog/", "--key", j.key}
	if j.newest != "" {
		args = append(args, "--checkpoint", j.newest)
	}
	cmd := exec.CommandContext(ctx, j.binary, args...)
	cmd.Env = append(os.Environ(), "AUDITRELAY_TLOG_TOKEN="+strings.TrimSpace(string(token)))
	j.tally.verified++
	said, err := cmd.Output()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() == incomplete:
		if err := j.complete(said); err != nil {
			return fmt.Errorf("the trail of %s is not complete: %w", r.name, err)
		}
	case err != nil:
		j.tally.forks++
		return fmt.Errorf("FORK: the trail of %s does not verify (%w): %s", r.name, err, said)
	}
	checkpoint, err := r.get(ctx, "/tlog/0/checkpoint")
	if err != nil {
		return err
	}
	j.newest = filepath.Join(j.dir, "checkpoint")
	return os.WriteFile(j.newest, checkpoint, 0o600)
}

// complete is an error if a report has findings other than those of a wrong clock.
func (j *judge) complete(said []byte) error {
	var report verify.Report
	if err := json.Unmarshal(said, &report); err != nil {
		return err
	}
	var missing []proof.Finding
	j.tally.clocks = 0
	for _, f := range report.Completeness.Findings {
		switch {
		case j.ofAWrongClock(f):
			j.tally.clocks++
		default:
			missing = append(missing, f)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%v", missing)
}

// timeInText finds the times that a finding names.
var timeInText = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// ofAWrongClock reports whether a finding is about times that are far from each other, or of which
// one is far from all those at which this program ran. The play that sets a clock wrong makes such,
// and they stay in the trail; by and by the present comes near to some of them.
func (j *judge) ofAWrongClock(f proof.Finding) bool {
	const far = 30 * time.Minute
	if f.Kind != proof.KindLooks && f.Kind != proof.KindHeartbeat {
		return false
	}
	if j.clocks[f] {
		return true
	}
	var named []time.Time
	for _, text := range timeInText.FindAllString(f.Detail, -1) {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			named = append(named, t)
		}
	}
	if len(named) == 0 {
		return false
	}
	first, last := slices.MinFunc(named, time.Time.Compare), slices.MaxFunc(named, time.Time.Compare)
	j.clocks[f] = last.Sub(first) > far || first.Before(j.began.Add(-far)) || last.After(time.Now().Add(far))
	return j.clocks[f]
}
