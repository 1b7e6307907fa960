package workspacesim

import (
	"encoding/json"
	"net/http"
)

// strict is a part of a setting whose JSON is, in [Options.StrictSettings], as the tests of
// public clients expect it of the real service.
type strict bool

// MarshalJSON shows null for the luds members where they do not count.
func (p passwordStrength) MarshalJSON() ([]byte, error) {
	type plain passwordStrength
	if !p.strict || p.ValidationPolicy != "ZXCVBN" {
		return rawJSON(plain(p)), nil
	}
	return rawJSON(struct {
		plain
		Length     *int `json:"luds_min_password_length"`
		Complexity *int `json:"luds_min_password_complexity"`
	}{plain: plain(p)}), nil
}

// MarshalJSON leaves custom_html_customization out of a prebuilt template.
func (t emailTemplate) MarshalJSON() ([]byte, error) {
	type plain emailTemplate
	if !t.strict || t.CustomHTML.TemplateType != "PREBUILT" {
		return rawJSON(plain(t)), nil
	}
	return rawJSON(struct {
		plain
		CustomHTML *customHTML `json:"custom_html_customization,omitempty"`
	}{plain: plain(t)}), nil
}

// MarshalJSON shows the attribute_mapping as an object.
func (p trustedTokenProfile) MarshalJSON() ([]byte, error) {
	type plain trustedTokenProfile
	if !p.strict {
		return rawJSON(plain(p)), nil
	}
	return rawJSON(struct {
		plain
		AttributeMapping json.RawMessage `json:"attribute_mapping"`
	}{plain(p), json.RawMessage(p.AttributeMapping)}), nil
}

// makeStrict marks all settings of a project.
func (p *projectState) makeStrict() {
	for i := range p.templates {
		p.templates[i].strict = true
	}
	for _, e := range p.environments {
		e.password.strict = true
		for i := range e.profiles {
			e.profiles[i].strict = true
		}
	}
}

// unsetStrictly is operation 7 in [Options.StrictSettings]: a default that is not there is
// unset already, and the one of PREBUILT stays.
func (s *Simulator) unsetStrictly(p *projectState, kind string) *apiError {
	if kind == "PREBUILT" {
		return &apiError{
			status: http.StatusBadRequest, kind: "cannot_unset_prebuilt_default_email_template",
			message: "The default template of type PREBUILT cannot be unset.",
		}
	}
	delete(p.defaults, kind)
	return nil
}
