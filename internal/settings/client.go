package settings

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/management"
)

// NewReader reads by the Workspace Management API.
func NewReader(client *management.Client) Reader { return clientReader{client} }

type clientReader struct{ client *management.Client }

func (c clientReader) Read(ctx context.Context, r Resource) (json.RawMessage, error) {
	switch r.Kind {
	case Project:
		return rawOf(c.client.Project(ctx, r.Project))
	case EmailTemplates:
		return rawOf(c.client.EmailTemplates(ctx, r.Project))
	case DefaultEmailTemplates:
		return rawOf(c.client.DefaultEmailTemplate(ctx, r.Project, management.EmailTemplateType(r.TemplateType)))
	case RBACPolicy:
		return rawOf(c.client.RBACPolicy(ctx, r.Project, r.Environment))
	case TrustedTokenProfiles:
		return rawOf(c.client.TrustedTokenProfiles(ctx, r.Project, r.Environment))
	case PasswordStrength:
		return rawOf(c.client.PasswordStrengthConfig(ctx, r.Project, r.Environment))
	case SMSCountryCodes:
		return rawOf(c.client.SMSCountryCodes(ctx, r.Project, r.Environment))
	}
	return nil, fmt.Errorf("unknown kind of setting: %s", r.Kind)
}

// rawOf gives the answer's JSON. An answer whose typed value could not be
// decoded still has it, and a field of an unexpected type is no reason not to
// watch the resource: whether the state can be believed is judged here.
func rawOf[T any](a management.Answer[T], err error) (json.RawMessage, error) {
	switch {
	case a.Raw != nil:
		return a.Raw, nil
	case management.IsNotFound(err):
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	case err != nil:
		return nil, err
	}
	return nil, errImplausible
}
