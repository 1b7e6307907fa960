package witness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// ForPolicy gives configured witnesses the names that a policy file needs.
func ForPolicy(configured []config.Witness) (list []proof.Witness) {
	for i, w := range configured {
		list = append(list, proof.Witness{Name: "witness-" + strconv.Itoa(i+1), Key: w.Key, URL: w.URL})
	}
	return list
}

// waitForQuorum begins the wait for a quorum, unless one is under way.
func (c *Cosigner) waitForQuorum(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missing.IsZero() {
		c.missing = now
	}
}

// countQuorum ends the wait, or raises the alarm once if it took too long.
func (c *Cosigner) countQuorum(signed int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if signed >= c.quorum {
		c.missing = time.Time{}
		c.metrics.quorumMissing.Set(0)
		if c.alarmed {
			c.alarmed = false
			c.log.Info("a quorum of witnesses cosigns the audit trail again", "signed", signed, "quorum", c.quorum)
		}
		return
	}
	if c.alarmed || now.Sub(c.missing) <= c.patience {
		return
	}
	c.alarmed = true
	c.metrics.quorumMissing.Set(1)
	c.log.Error("the audit trail lacks a quorum of witnesses: nobody outside vouches for its newest entries",
		"signed", signed, "quorum", c.quorum, "since", c.missing.UTC().Format(time.RFC3339))
}

// Remark is a line of text about the witnesses.
func (c *Cosigner) Remark() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var refused, failing []string
	for i, s := range c.states {
		name := c.peers[i].verifier.Name()
		switch {
		case s.Refused:
			refused = append(refused, name+": "+s.Failure)
		case s.Failure != "":
			failing = append(failing, name+": "+s.Failure)
		}
	}
	text := fmt.Sprintf("%d of %d witnesses cosign, %d are needed", len(c.states)-len(refused)-len(failing), len(c.states), c.quorum)
	if all := slices.Concat(refused, failing); len(all) > 0 {
		text += "; " + strings.Join(all, "; ")
	}
	switch {
	case len(refused) > 0:
		return "warning: a witness knows another history of the trail; " + text
	case c.late(time.Now()):
		return "warning: a quorum of witnesses is missing since " + c.missing.UTC().Format(time.RFC3339) + "; " + text
	}
	return text
}

// late reports whether the wait for a quorum is too long. The caller holds mu.
func (c *Cosigner) late(now time.Time) bool {
	return !c.missing.IsZero() && now.Sub(c.missing) > c.patience
}

// Status is for /status, as JSON.
func (c *Cosigner) Status() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]any{
		"quorum": c.quorum, "quorum_missing": c.late(time.Now()), "witnesses": slices.Clone(c.states),
	}
}
