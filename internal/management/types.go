package management

import "encoding/json"

// Project is a project of the workspace.
type Project struct {
	Slug      string   `json:"project_slug"`
	Name      string   `json:"name"`
	Vertical  Vertical `json:"vertical"`
	CreatedAt string   `json:"created_at"` // a timestamp as text, in an undocumented form
}

// Vertical is the kind of a project's customers.
type Vertical string

// The known verticals.
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

// RedirectKind is the use of a redirect URL.
type RedirectKind string

// The known kinds of redirects.
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

// TrustedTokenProfile describes the foreign tokens an environment trusts.
type TrustedTokenProfile struct {
	ProfileID       string    `json:"profile_id"`
	Name            string    `json:"name"`
	Audience        string    `json:"audience"`
	Issuer          string    `json:"issuer"`
	PEMFiles        []PEMFile `json:"pem_files"`
	CanJITProvision bool      `json:"can_jit_provision"`
	JWKSURL         string    `json:"jwks_url"`
	// AttributeMapping is a string in the document, and at times an object on the wire.
	AttributeMapping json.RawMessage `json:"attribute_mapping"`
	PublicKeyType    PublicKeyType   `json:"public_key_type"`
}

// PEMFile is a public key of a trusted token profile.
type PEMFile struct {
	ID        string `json:"pem_file_id"`
	PublicKey string `json:"public_key"`
}

// PublicKeyType is the form of a trusted token profile's keys.
type PublicKeyType string

// The known key types.
const (
	PublicKeyJWK PublicKeyType = "JWK"
	PublicKeyPEM PublicKeyType = "PEM"
)

// PasswordStrengthConfig holds an environment's rules for passwords.
type PasswordStrengthConfig struct {
	CheckBreachOnCreation       bool             `json:"check_breach_on_creation"`
	CheckBreachOnAuthentication bool             `json:"check_breach_on_authentication"`
	ValidateOnAuthentication    bool             `json:"validate_on_authentication"`
	ValidationPolicy            ValidationPolicy `json:"validation_policy"`
	// The luds fields are nil under ZXCVBN.
	LUDSMinPasswordLength     *json.Number `json:"luds_min_password_length"`
	LUDSMinPasswordComplexity *json.Number `json:"luds_min_password_complexity"`
}

// ValidationPolicy is the measure of a password's strength.
type ValidationPolicy string

// The known policies.
const (
	PolicyZXCVBN ValidationPolicy = "ZXCVBN"
	PolicyLUDS   ValidationPolicy = "LUDS"
)
