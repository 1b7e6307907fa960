package workspace

import "github.com/auditrelay/auditrelay/internal/workspace/kinds"

// Kind is the name of a kind of setting.
type Kind = string

// The kinds, by name.
var (
	Project               = kinds.Project.Name
	EmailTemplates        = kinds.EmailTemplates.Name
	DefaultEmailTemplates = kinds.DefaultEmailTemplates.Name
	RBACPolicy            = kinds.RBACPolicy.Name
	TrustedTokenProfiles  = kinds.TrustedTokenProfiles.Name
	PasswordStrength      = kinds.PasswordStrength.Name
	SMSCountryCodes       = kinds.SMSCountryCodes.Name
)

// Resource is what the simulated API has an answer for.
type Resource struct {
	Kind, Project, Environment string
	TemplateType               string // of a default email template
}

func names(some []kinds.Setting) (all []Kind) {
	for _, s := range some {
		all = append(all, s.Name)
	}
	return all
}

func projectKinds() []Kind     { return names(kinds.Of(true)) }
func environmentKinds() []Kind { return names(kinds.Of(false)) }
