package management

import (
	"context"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// RBACPolicy reads a setting of an environment.
func (c *Client) RBACPolicy(ctx context.Context, project, environment string) (Answer, error) {
	return c.Setting(ctx, kinds.RBACPolicy, project, environment, "")
}

// SMSCountryCodes reads a list of an environment.
func (c *Client) SMSCountryCodes(ctx context.Context, project, environment string) (Answer, error) {
	return c.Setting(ctx, kinds.SMSCountryCodes, project, environment, "")
}
