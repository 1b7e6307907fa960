package workspacesim

import "encoding/json"

// The types of this file are the API's resources as they are on the wire.

type project struct {
	Slug      string `json:"project_slug"`
	Name      string `json:"name"`
	Vertical  string `json:"vertical"`
	CreatedAt string `json:"created_at"`
}

type redirectURL struct {
	URL        string      `json:"url"`
	ValidTypes []validType `json:"valid_types"`
}

type validType struct {
	IsDefault bool   `json:"is_default"`
	Type      string `json:"type"`
}

// rbacPolicy has four fields with a configurable prefix in their names, so it writes its
// own JSON.
type rbacPolicy struct {
	prefix           string
	serviceResources []rbacResource
	member           grants
	admin            grants
	user             grants
	customRoles      []role
	customResources  []rbacResource
	customScopes     []scope
}

func (p rbacPolicy) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		p.prefix + "_resources": p.serviceResources,
		p.prefix + "_member":    p.member,
		p.prefix + "_admin":     p.admin,
		p.prefix + "_user":      p.user,
		"custom_roles":          p.customRoles,
		"custom_resources":      p.customResources,
		"custom_scopes":         p.customScopes,
	})
}

type rbacResource struct {
	ResourceID       string   `json:"resource_id"`
	Description      string   `json:"description"`
	AvailableActions []string `json:"available_actions"`
}

type permission struct {
	ResourceID string   `json:"resource_id"`
	Actions    []string `json:"actions"`
}

type grants struct {
	Permissions []permission `json:"permissions"`
}

type role struct {
	RoleID      string       `json:"role_id"`
	Description string       `json:"description"`
	Permissions []permission `json:"permissions"`
}

type scope struct {
	Scope       string       `json:"scope"`
	Description string       `json:"description"`
	Permissions []permission `json:"permissions"`
}

type emailTemplate struct {
	TemplateID string       `json:"template_id"`
	Name       string       `json:"name"`
	Sender     sender       `json:"sender_information"`
	Prebuilt   prebuiltLook `json:"prebuilt_customization"`
	CustomHTML customHTML   `json:"custom_html_customization"`

	strict strict
}

type sender struct {
	FromLocalPart    string `json:"from_local_part"`
	FromDomain       string `json:"from_domain"`
	FromName         string `json:"from_name"`
	ReplyToLocalPart string `json:"reply_to_local_part"`
	ReplyToName      string `json:"reply_to_name"`
}

type prebuiltLook struct {
	ButtonBorderRadius int    `json:"button_border_radius"`
	ButtonColor        string `json:"button_color"`
	ButtonTextColor    string `json:"button_text_color"`
	FontFamily         string `json:"font_family"`
	TextAlignment      string `json:"text_alignment"`
}

type customHTML struct {
	TemplateType     string `json:"template_type"`
	HTMLContent      string `json:"html_content"`
	PlaintextContent string `json:"plaintext_content"`
	Subject          string `json:"subject"`
}

type trustedTokenProfile struct {
	ProfileID        string    `json:"profile_id"`
	Name             string    `json:"name"`
	Audience         string    `json:"audience"`
	Issuer           string    `json:"issuer"`
	PEMFiles         []pemFile `json:"pem_files"`
	CanJITProvision  bool      `json:"can_jit_provision"`
	JWKSURL          string    `json:"jwks_url"`
	AttributeMapping string    `json:"attribute_mapping"`
	PublicKeyType    string    `json:"public_key_type"`

	strict strict
}

type pemFile struct {
	PEMFileID string `json:"pem_file_id"`
	PublicKey string `json:"public_key"`
}

type passwordStrength struct {
	CheckBreachOnCreation       bool   `json:"check_breach_on_creation"`
	CheckBreachOnAuthentication bool   `json:"check_breach_on_authentication"`
	ValidateOnAuthentication    bool   `json:"validate_on_authentication"`
	ValidationPolicy            string `json:"validation_policy"`
	LUDSMinPasswordLength       int    `json:"luds_min_password_length"`
	LUDSMinPasswordComplexity   int    `json:"luds_min_password_complexity"`

	strict strict
}

// emailTemplateTypes are the values of operations 6 and 7's path parameter and
// of template_type.
var emailTemplateTypes = []string{
	"LOGIN", "SIGNUP", "INVITE", "RESET_PASSWORD", "ONE_TIME_PASSCODE",
	"ONE_TIME_PASSCODE_SIGNUP", "VERIFY_EMAIL_PASSWORD_RESET", "UNLOCK", "PREBUILT",
}

// redirectTypes and verticals hold more than the document shows: see CHOICES.md.
var (
	redirectTypes = []string{"LOGIN", "SIGNUP", "INVITE", "RESET_PASSWORD", "DISCOVERY"}
	verticals     = []string{"ALL", "CONSUMER", "B2B"}
)
