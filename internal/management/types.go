package management

import "encoding/json"

// Project is a project of the workspace.
type Project struct {
	Slug      string   `json:"project_slug"`
	Name      string   `json:"name"`
	Vertical  Vertical `json:"vertical"`
	CreatedAt string   `json:"created_at"` // a timestamp as text; its form is not documented
}

// Vertical is the kind of a project's customers.
type Vertical string

// The verticals that are known.
const (
	VerticalAll      Vertical = "ALL"
	VerticalB2B      Vertical = "B2B"
	VerticalConsumer Vertical = "CONSUMER"
)

// ProjectUpdate is the body of operation 2.
type ProjectUpdate struct {
	Name string `json:"name"`
}

// NewProject is the body of the creation of a project.
type NewProject struct {
	Name     string   `json:"project_name"`
	Vertical Vertical `json:"vertical"`
}

// RedirectURL is a redirect URL of an environment.
type RedirectURL struct {
	URL        string         `json:"url"`
	ValidTypes []RedirectType `json:"valid_types"`
}

// RedirectType is one use of a redirect URL.
type RedirectType struct {
	IsDefault bool         `json:"is_default"`
	Type      RedirectKind `json:"type"`
}

// RedirectKind names what a redirect URL is used for.
type RedirectKind string

// The kinds of redirects that are known.
const (
	RedirectLogin         RedirectKind = "LOGIN"
	RedirectSignup        RedirectKind = "SIGNUP"
	RedirectInvite        RedirectKind = "INVITE"
	RedirectResetPassword RedirectKind = "RESET_PASSWORD"
	RedirectDiscovery     RedirectKind = "DISCOVERY"
)

// RedirectURLUpdate is the body of operation 3.
type RedirectURLUpdate struct {
	ValidTypes           []RedirectType `json:"valid_types"`
	DoNotPromoteDefaults bool           `json:"do_not_promote_defaults"`
}

// TrustedTokenProfile says which foreign tokens an environment trusts.
type TrustedTokenProfile struct {
	ProfileID       string    `json:"profile_id"`
	Name            string    `json:"name"`
	Audience        string    `json:"audience"`
	Issuer          string    `json:"issuer"`
	PEMFiles        []PEMFile `json:"pem_files"`
	CanJITProvision bool      `json:"can_jit_provision"`
	JWKSURL         string    `json:"jwks_url"`
	// AttributeMapping is documented as a string, and seen as an object too.
	AttributeMapping json.RawMessage `json:"attribute_mapping"`
	PublicKeyType    PublicKeyType   `json:"public_key_type"`
}

// PEMFile is a public key of a trusted token profile.
type PEMFile struct {
	ID        string `json:"pem_file_id"`
	PublicKey string `json:"public_key"`
}

// PublicKeyType is how a trusted token profile's keys are given.
type PublicKeyType string

// The key types that are known.
const (
	PublicKeyJWK PublicKeyType = "JWK"
	PublicKeyPEM PublicKeyType = "PEM"
)

// PasswordStrengthConfig says what passwords an environment takes.
type PasswordStrengthConfig struct {
	CheckBreachOnCreation       bool             `json:"check_breach_on_creation"`
	CheckBreachOnAuthentication bool             `json:"check_breach_on_authentication"`
	ValidateOnAuthentication    bool             `json:"validate_on_authentication"`
	ValidationPolicy            ValidationPolicy `json:"validation_policy"`
	// The luds fields are nil under ZXCVBN.
	LUDSMinPasswordLength     *int `json:"luds_min_password_length"`
	LUDSMinPasswordComplexity *int `json:"luds_min_password_complexity"`
}

// ValidationPolicy is how a password's strength is judged.
type ValidationPolicy string

// The policies that are known.
const (
	PolicyZXCVBN ValidationPolicy = "ZXCVBN"
	PolicyLUDS   ValidationPolicy = "LUDS"
)
