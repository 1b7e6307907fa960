package settings

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/management"
)

// answer is a resource as the API gave it.
type answer struct {
	raw       json.RawMessage // without the envelope, secrets redacted
	requestID string
	note      string // what the client assumed
}

// fetch reads a resource: an object or an array; for DefaultEmailTemplates, the id of
// the default template of one type.
func (w *Watcher) fetch(ctx context.Context, r Resource) (answer, error) {
	c := w.client
	switch r.Kind {
	case Project:
		return answerOf(c.Project(ctx, r.Project))
	case EmailTemplates:
		return answerOf(c.EmailTemplates(ctx, r.Project))
	case DefaultEmailTemplates:
		return answerOf(c.DefaultEmailTemplate(ctx, r.Project, management.EmailTemplateType(r.TemplateType)))
	case RBACPolicy:
		return answerOf(c.RBACPolicy(ctx, r.Project, r.Environment))
	case TrustedTokenProfiles:
		return answerOf(c.TrustedTokenProfiles(ctx, r.Project, r.Environment))
	case PasswordStrength:
		return answerOf(c.PasswordStrengthConfig(ctx, r.Project, r.Environment))
	case SMSCountryCodes:
		return answerOf(c.SMSCountryCodes(ctx, r.Project, r.Environment))
	}
	return answer{}, fmt.Errorf("unknown kind of setting: %s", r.Kind)
}

// answerOf gives the answer's JSON, even where its typed value could not be decoded: a
// field of an unexpected type is no reason not to watch the resource. The shape is
// judged by plausible.
func answerOf[T any](a management.Answer[T], err error) (answer, error) {
	switch {
	case a.Raw != nil:
		return answer{a.Raw, a.RequestID, a.Note}, nil
	case err != nil:
		return answer{}, err
	}
	return answer{}, errImplausible
}
