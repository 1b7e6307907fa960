package workspacesim

import "strings"

// addTemplates gives p prebuilt templates, one custom HTML template for each
// of some types, and most of those as defaults.
func (m *maker) addTemplates(p *projectState) {
	for _, name := range []string{"Brand look", "Brand look, dark"} {
		p.templates = append(p.templates, m.prebuiltTemplate(p, name))
	}
	for _, kind := range emailTemplateTypes {
		if kind == "PREBUILT" {
			continue
		}
		t := m.htmlTemplate(p, kind)
		p.templates = append(p.templates, t)
		if m.chance(70) {
			p.defaults[kind] = t.TemplateID
		}
	}
	p.defaults["PREBUILT"] = p.templates[0].TemplateID
	p.defaults["LOGIN"] = p.templates[2].TemplateID
}

func (m *maker) template(p *projectState, name string) emailTemplate {
	return emailTemplate{
		TemplateID: m.id("email-template"),
		Name:       name,
		Sender: sender{
			FromLocalPart: pick(m, []string{"login", "no-reply", "hello"}), FromDomain: p.Slug + ".example", FromName: p.Name,
			ReplyToLocalPart: "support", ReplyToName: p.Name + " Support",
		},
		Prebuilt: prebuiltLook{
			ButtonBorderRadius: 2 * m.rng.IntN(9), ButtonColor: pick(m, buttonColors), ButtonTextColor: "#FFFFFF",
			FontFamily: "ARIAL", TextAlignment: pick(m, []string{"LEFT", "CENTER"}),
		},
	}
}

var buttonColors = []string{"#106EE9", "#0D4052", "#7A1FA2", "#C62828", "#2E7D32", "#EF6C00", "#37474F", "#00838F"}

func (m *maker) prebuiltTemplate(p *projectState, name string) emailTemplate {
	t := m.template(p, name)
	t.CustomHTML.TemplateType = "PREBUILT"
	return t
}

// htmlSubjects are the subjects of custom HTML templates by their type.
var htmlSubjects = map[string]string{
	"LOGIN":                       "Your login request to {{project_name}}",
	"SIGNUP":                      "Welcome to {{project_name}} – confirm your e-mail",
	"INVITE":                      "You have been invited to {{organization_name}}",
	"RESET_PASSWORD":              "Reset your {{project_name}} password",
	"ONE_TIME_PASSCODE":           "{{otp_code}} is your code",
	"ONE_TIME_PASSCODE_SIGNUP":    "{{otp_code}} completes your sign-up",
	"VERIFY_EMAIL_PASSWORD_RESET": "Verify your e-mail to reset your password",
	"UNLOCK":                      "Unlock your {{project_name}} account",
}

func (m *maker) htmlTemplate(p *projectState, kind string) emailTemplate {
	t := m.template(p, "Custom "+strings.ToLower(strings.ReplaceAll(kind, "_", " ")))
	t.CustomHTML = customHTML{
		TemplateType: kind,
		Subject:      htmlSubjects[kind],
		HTMLContent: "<!doctype html>\n<html><body style=\"font-family:Arial\">\n<h1>" + p.Name + "</h1>\n" +
			"<p>Hello {{name}},</p>\n<p><a href=\"{{magic_link_url}}\">Continue</a> &mdash; valid for {{expiration_minutes}} minutes.</p>\n</body></html>\n",
		PlaintextContent: "Hello {{name}},\n\nopen {{magic_link_url}} to continue.\n",
	}
	return t
}
