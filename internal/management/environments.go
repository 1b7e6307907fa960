package management

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

const environmentPath = "/pwa/v3/projects/:project_slug/environments/:environment_slug"

// UpdateRedirectURL sets the valid types of a redirect URL (operation 3). The document
// does not show how a request names the URL. Public clients send it as the query
// parameter url, and so does this one.
func (c *Client) UpdateRedirectURL(ctx context.Context, project, environment, redirectURL string, u RedirectURLUpdate) (Answer[RedirectURL], error) {
	if u.ValidTypes == nil {
		u.ValidTypes = []RedirectType{} // an array by the document, never null
	}
	body, err := json.Marshal(u)
	if err != nil {
		return Answer[RedirectURL]{}, err
	}
	return fetch(ctx, c, call{
		operation: "update redirect url", method: http.MethodPut,
		path: environmentPath + "/redirect_urls", params: []string{project, environment},
		query: url.Values{"url": {redirectURL}}, body: body,
	}, "redirect_url", plain[RedirectURL])
}

// TrustedTokenProfiles reads all profiles of an environment (operation 8).
func (c *Client) TrustedTokenProfiles(ctx context.Context, project, environment string) (Answer[[]TrustedTokenProfile], error) {
	return fetch(ctx, c, call{
		operation: "read trusted token profiles", method: http.MethodGet,
		path: environmentPath + "/trusted_token_profiles", params: []string{project, environment},
	}, "profiles", plain[[]TrustedTokenProfile])
}

// PasswordStrengthConfig reads an environment's rules for passwords (operation 9).
func (c *Client) PasswordStrengthConfig(ctx context.Context, project, environment string) (Answer[PasswordStrengthConfig], error) {
	return fetch(ctx, c, call{
		operation: "read password strength config", method: http.MethodGet,
		path: environmentPath + "/password_strength_config", params: []string{project, environment},
	}, "password_strength_config", plain[PasswordStrengthConfig])
}

// SMSCountryCodes reads the countries an environment sends SMS to (operation 10).
func (c *Client) SMSCountryCodes(ctx context.Context, project, environment string) (Answer[[]string], error) {
	return fetch(ctx, c, call{
		operation: "read sms country codes", method: http.MethodGet,
		path: environmentPath + "/allowed_country_codes/sms", params: []string{project, environment},
	}, "country_codes", plain[[]string])
}

// DeleteSecret deletes a secret of an environment by its id (operation 11). If an answer
// is lost, the client repeats the call, and may get a 404.
func (c *Client) DeleteSecret(ctx context.Context, project, environment, secretID string) (Receipt, error) {
	return c.receive(ctx, call{
		operation: "delete secret", method: http.MethodDelete,
		path: environmentPath + "/secrets/:secret_id", params: []string{project, environment, secretID},
	})
}

// DeletePublicToken deletes a public token of an environment (operation 12). If an answer
// is lost, the client repeats the call, and may get a 404.
func (c *Client) DeletePublicToken(ctx context.Context, project, environment, publicToken string) (Receipt, error) {
	return c.receive(ctx, call{
		operation: "delete public token", method: http.MethodDelete,
		path: environmentPath + "/public_tokens/:public_token", params: []string{project, environment, publicToken},
	})
}
