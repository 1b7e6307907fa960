package management

import (
	"context"
	"encoding/json"
	"net/http"
)

// EmailTemplate is an email template of a project.
type EmailTemplate struct {
	TemplateID              string                  `json:"template_id"`
	Name                    string                  `json:"name"`
	SenderInformation       SenderInformation       `json:"sender_information"`
	PrebuiltCustomization   PrebuiltCustomization   `json:"prebuilt_customization"`
	CustomHTMLCustomization CustomHTMLCustomization `json:"custom_html_customization"`
}

// SenderInformation is the sender of a template's mails.
type SenderInformation struct {
	FromLocalPart    string `json:"from_local_part"`
	FromDomain       string `json:"from_domain"`
	FromName         string `json:"from_name"`
	ReplyToLocalPart string `json:"reply_to_local_part"`
	ReplyToName      string `json:"reply_to_name"`
}

// PrebuiltCustomization styles the provider's own template.
type PrebuiltCustomization struct {
	ButtonBorderRadius json.Number   `json:"button_border_radius"` // an integer in the document
	ButtonColor        string        `json:"button_color"`
	ButtonTextColor    string        `json:"button_text_color"`
	FontFamily         FontFamily    `json:"font_family"`
	TextAlignment      TextAlignment `json:"text_alignment"`
}

// CustomHTMLCustomization is a workspace's own template.
type CustomHTMLCustomization struct {
	TemplateType     EmailTemplateType `json:"template_type"`
	HTMLContent      string            `json:"html_content"`
	PlaintextContent string            `json:"plaintext_content"`
	Subject          string            `json:"subject"`
}

// FontFamily is a template's font. Only ARIAL is documented.
type FontFamily string

// FontArial is the documented font.
const FontArial FontFamily = "ARIAL"

// TextAlignment is the alignment of a template's text.
type TextAlignment string

// The known alignments.
const (
	AlignLeft   TextAlignment = "LEFT"
	AlignCenter TextAlignment = "CENTER"
)

// EmailTemplateType is the occasion of a template's mails.
type EmailTemplateType string

// The documented types.
const (
	TemplateLogin                    EmailTemplateType = "LOGIN"
	TemplateSignup                   EmailTemplateType = "SIGNUP"
	TemplateInvite                   EmailTemplateType = "INVITE"
	TemplateResetPassword            EmailTemplateType = "RESET_PASSWORD"
	TemplateOneTimePasscode          EmailTemplateType = "ONE_TIME_PASSCODE"
	TemplateOneTimePasscodeSignup    EmailTemplateType = "ONE_TIME_PASSCODE_SIGNUP"
	TemplateVerifyEmailPasswordReset EmailTemplateType = "VERIFY_EMAIL_PASSWORD_RESET"
	TemplateUnlock                   EmailTemplateType = "UNLOCK"
	TemplatePrebuilt                 EmailTemplateType = "PREBUILT"
)

const defaultTemplatePath = "/pwa/v3/projects/:project_slug/default_email_templates/:email_template_type"

// EmailTemplates reads all templates of a project (operation 5).
func (c *Client) EmailTemplates(ctx context.Context, project string) (Answer[[]EmailTemplate], error) {
	return fetch(ctx, c, call{
		operation: "read email templates", method: http.MethodGet,
		path: "/pwa/v3/projects/:project_slug/email_templates", params: []string{project},
	}, "email_templates", plain[[]EmailTemplate])
}

// DefaultEmailTemplate reads the id of the default template of a type (operation 6). A
// type without one may give a 404: see [Client.Confirm].
func (c *Client) DefaultEmailTemplate(ctx context.Context, project string, t EmailTemplateType) (Answer[string], error) {
	return fetch(ctx, c, call{
		operation: "read default email template", method: http.MethodGet,
		path: defaultTemplatePath, params: []string{project, string(t)},
	}, "template_id", plain[string])
}

// UnsetDefaultEmailTemplate removes the default of a type (operation 7). If an answer is
// lost, the client repeats the call, and may get a 404.
func (c *Client) UnsetDefaultEmailTemplate(ctx context.Context, project string, t EmailTemplateType) (Receipt, error) {
	return c.receive(ctx, call{
		operation: "unset default email template", method: http.MethodDelete,
		path: defaultTemplatePath, params: []string{project, string(t)},
	})
}
