package management

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// RenameProject gives a project another name (operation 2).
func (c *Client) RenameProject(ctx context.Context, project, name string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		return Answer{}, err
	}
	return c.fetch(ctx, call{
		operation: "update project", method: http.MethodPatch,
		path: kinds.ProjectPath, params: []string{project}, body: body,
	}, "project", false)
}

// CreateProject makes a project for customers of one kind, its vertical. The client never repeats
// this call: after an error other than an [APIError], the project may exist or not.
//
// The answer's shape is undocumented. Raw is its member "project" if there is one, else
// all of it, without secrets.
func (c *Client) CreateProject(ctx context.Context, name, vertical string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"project_name": name, "vertical": vertical})
	if err != nil {
		return Answer{}, err
	}
	k := call{operation: "create project", method: http.MethodPost, path: "/v1/projects", body: body}
	r, err := c.send(ctx, k)
	if err != nil {
		return Answer{}, err
	}
	a, err := createdProject(r, c.scrub)
	if err != nil {
		return a, fmt.Errorf("%s: %w", k.operation, c.scrub.cleanError(err))
	}
	a.Raw = c.scrub.cleanRaw(a.Raw)
	return a, nil
}

func createdProject(r reply, scrub *scrubber) (Answer, error) {
	members, receipt, err := r.members(scrub)
	a := Answer{Receipt: receipt}
	if err != nil || len(r.body) == 0 {
		return a, err
	}
	raw, ok := members["project"]
	if !ok {
		raw = r.body
	}
	a.Raw, err = redact(raw)
	return a, err
}

// RedirectType is one use of a redirect URL, such as LOGIN.
type RedirectType struct {
	IsDefault bool   `json:"is_default"`
	Type      string `json:"type"`
}

// RedirectURLUpdate is the body of operation 3.
type RedirectURLUpdate struct {
	ValidTypes           []RedirectType `json:"valid_types"`
	DoNotPromoteDefaults bool           `json:"do_not_promote_defaults"`
}

// UpdateRedirectURL sets the valid types of a redirect URL (operation 3). The document
// does not show how a request names the URL. Public clients send it as the query
// parameter url, and so does this one.
func (c *Client) UpdateRedirectURL(ctx context.Context, project, environment, redirectURL string, u RedirectURLUpdate) (Answer, error) {
	if u.ValidTypes == nil {
		u.ValidTypes = []RedirectType{} // an array by the document, never null
	}
	body, err := json.Marshal(u)
	if err != nil {
		return Answer{}, err
	}
	return c.fetch(ctx, call{
		operation: "update redirect url", method: http.MethodPut,
		path: kinds.EnvironmentPath + "/redirect_urls", params: []string{project, environment},
		query: url.Values{"url": {redirectURL}}, body: body,
	}, "redirect_url", false)
}

// UnsetDefaultEmailTemplate removes the default of a type (operation 7). If an answer is
// lost, the client repeats the call, and may get a 404.
func (c *Client) UnsetDefaultEmailTemplate(ctx context.Context, project, kind string) (Answer, error) {
	return c.fetch(ctx, call{
		operation: "unset default email template", method: http.MethodDelete,
		path: kinds.DefaultEmailTemplates.Path, params: []string{project, kind},
	}, "", false)
}

// DeleteSecret deletes a secret of an environment by its id (operation 11). If an answer
// is lost, the client repeats the call, and may get a 404.
func (c *Client) DeleteSecret(ctx context.Context, project, environment, secretID string) (Answer, error) {
	return c.fetch(ctx, call{
		operation: "delete secret", method: http.MethodDelete,
		path: kinds.EnvironmentPath + "/secrets/:secret_id", params: []string{project, environment, secretID},
	}, "", false)
}

// DeletePublicToken deletes a public token of an environment (operation 12). If an answer
// is lost, the client repeats the call, and may get a 404.
func (c *Client) DeletePublicToken(ctx context.Context, project, environment, publicToken string) (Answer, error) {
	return c.fetch(ctx, call{
		operation: "delete public token", method: http.MethodDelete,
		path: kinds.EnvironmentPath + "/public_tokens/:public_token", params: []string{project, environment, publicToken},
	}, "", false)
}
