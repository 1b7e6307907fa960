package management

import (
	"context"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Migrate posts to the service's second API, whose base address, project id and project secret a
// client of its own has in place of a management key: see internal/migration. It is not repeated.
// After an error other than an [APIError] or [ErrNotSent], it may have had its effect. Errors show
// none of the given secrets, and Raw has none of the members that are one by their names.
func (c *Client) Migrate(ctx context.Context, path string, body []byte, secrets ...secret.Text) (Answer, error) {
	known := slices.Concat(ownSecrets(c.options.KeyID, c.options.Secret), secrets)
	k := call{operation: "migrate", method: http.MethodPost, path: path, body: body, scrub: newScrubber(known...)}
	r, err := c.send(ctx, k)
	if err != nil {
		return Answer{}, err
	}
	_, receipt, err := r.members(k.scrub)
	if err != nil {
		return Answer{}, k.scrub.cleanError(err)
	}
	raw, err := redact(r.body)
	return Answer{Receipt: receipt, Raw: raw}, err
}
