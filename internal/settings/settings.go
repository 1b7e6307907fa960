// Package settings watches the workspace's settings: it reads each at its interval,
// compares it with the state in the audit trail, and enters the changes into the trail.
//
// The trail is the only state. A look is compared with the After of the resource's newest
// entry. A change is appended behind this entry or not at all. So a change present at a
// look enters once, whatever crashed before, and whoever else is looking. Where the API's
// answer is as it was, to the byte, and nobody has added to the trail, nothing is parsed
// or compared.
//
// States are kept raw, in canonical form (RFC 8785), but compared by meaning: sets, and
// lists keyed by an id, do not change when reordered; an unknown field is compared as it
// stands. See [jsondiff.Diff]. The answers' envelopes (request_id, status_code) are no
// part of a state; the request ids stand in the entry's Detail.
//
// A failed read changes nothing: the old state stands, and an entry names the cause once.
// A missing setting, or environment, is an entry only by a believed 404 (see
// internal/management, Client.Confirm).
package settings

// Kind is a kind of setting; it is the Subject of its entries in the trail.
type Kind string

// The readable settings of the Workspace Management API. The first three belong to a
// project, the others to an environment.
const (
	Project               Kind = "project"                  // operation 1
	EmailTemplates        Kind = "email_templates"          // operation 5
	DefaultEmailTemplates Kind = "default_email_templates"  // operation 6, each type
	RBACPolicy            Kind = "rbac_policy"              // operation 4
	TrustedTokenProfiles  Kind = "trusted_token_profiles"   // operation 8
	PasswordStrength      Kind = "password_strength_config" // operation 9
	SMSCountryCodes       Kind = "sms_country_codes"        // operation 10
)

// projectKinds are read in this order: a read of the project beside missing default
// templates is the look at the project, too.
func projectKinds() []Kind { return []Kind{EmailTemplates, DefaultEmailTemplates, Project} }

func environmentKinds() []Kind {
	return []Kind{RBACPolicy, TrustedTokenProfiles, PasswordStrength, SMSCountryCodes}
}

// templateTypes are the values for operation 6.
func templateTypes() []string {
	return []string{
		"LOGIN", "SIGNUP", "INVITE", "RESET_PASSWORD", "ONE_TIME_PASSCODE", "ONE_TIME_PASSCODE_SIGNUP",
		"VERIFY_EMAIL_PASSWORD_RESET", "UNLOCK", "PREBUILT",
	}
}

// Resource is one readable thing.
type Resource struct {
	Kind        Kind
	Project     string
	Environment string // empty for a project's
	// TemplateType is set for DefaultEmailTemplates, read by type.
	TemplateType string
}
