package web

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/workspace"
)

// The page says which rules are in force and what violates them; an exception is no violation.
func TestViolationsAreShown(t *testing.T) {
	t.Parallel()
	c := newStage(t)
	session := login(t, c.Console, c.URL)
	_, page := send(t, "GET", c.URL+policiesPath, session)
	assert.Contains(t, page, "Nothing has been judged yet")
	assert.Contains(t, page, "baseline/password_length")
	assert.Contains(t, page, "strict/", "what is shipped")

	broken := workspace.Violation{Rule: "short", Setting: "project", Severity: "low", Reason: hostile, Fault: "it cannot be evaluated"}
	grave := workspace.Violation{Rule: "baseline/password_length", Setting: "password_strength_config", Severity: "high", Reason: "short passwords are guessed"}
	until := time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)
	c.status["policies"] = []workspace.PolicyStatus{
		{Project: "shop", Environment: "live", PolicyState: workspace.PolicyState{Violations: []workspace.PolicyViolation{{Violation: broken}, {Violation: grave}}}},
		{Project: "shop", Environment: "test", PolicyState: workspace.PolicyState{Violations: []workspace.PolicyViolation{
			{Violation: grave, Excepted: &workspace.PolicyException{Rule: grave.Rule, Until: until, Reason: "the load test"}},
		}}},
	}
	_, page = send(t, "GET", c.URL+policiesPath, session)
	assert.Contains(t, page, "2 violations")
	assert.Contains(t, page, "Excepted until")
	assert.Contains(t, page, "it cannot be evaluated")
	assert.Contains(t, page, "/changes?setting=password_strength_config&amp;project=shop&amp;environment=live")
	assert.NotContains(t, page, hostile)
	assert.Regexp(t, `(?s)baseline/password_length.*high.*short.*low.*Violated, and excepted`, page, "the most severe first")

	c.status["policies"] = map[string]string{"error": errors.New("the trail is away").Error()}
	_, page = send(t, "GET", c.URL+policiesPath, session)
	assert.Contains(t, page, "It is not known what is violated")
	assert.Contains(t, page, "the trail is away")
}
