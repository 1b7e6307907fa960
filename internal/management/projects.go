package management

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

const projectPath = "/pwa/v3/projects/:project_slug"

// Project reads a project (operation 1).
func (c *Client) Project(ctx context.Context, project string) (Answer[Project], error) {
	return fetch(ctx, c, call{
		operation: "read project", method: http.MethodGet,
		path: projectPath, params: []string{project},
	}, "project", plain[Project])
}

// UpdateProject changes a project (operation 2).
func (c *Client) UpdateProject(ctx context.Context, project string, u ProjectUpdate) (Answer[Project], error) {
	body, err := json.Marshal(u)
	if err != nil {
		return Answer[Project]{}, err
	}
	return fetch(ctx, c, call{
		operation: "update project", method: http.MethodPatch,
		path: projectPath, params: []string{project}, body: body,
	}, "project", plain[Project])
}

// CreateProject makes a project. It is never repeated by itself: after an
// error that is not an [APIError] the project may exist or not.
//
// The answer's shape is not documented: Raw is its member "project" where it
// has one, else all of it, secrets redacted in either case; Value is as much
// of a project as was found there.
func (c *Client) CreateProject(ctx context.Context, p NewProject) (Answer[Project], error) {
	body, err := json.Marshal(p)
	if err != nil {
		return Answer[Project]{}, err
	}
	k := call{operation: "create project", method: http.MethodPost, path: "/v1/projects", body: body}
	r, err := c.send(ctx, k)
	if err != nil {
		return Answer[Project]{}, err
	}
	a, err := createdProject(r)
	if err != nil {
		return a, fmt.Errorf("%s: %w", k.operation, c.scrub.cleanError(err))
	}
	a.Raw = c.scrub.cleanRaw(a.Raw)
	return a, nil
}

func createdProject(r reply) (Answer[Project], error) {
	members, receipt, err := r.members()
	a := Answer[Project]{Receipt: receipt}
	if err != nil || len(r.body) == 0 {
		return a, err
	}
	raw, ok := members["project"]
	if !ok {
		raw = r.body
	}
	if a.Raw, err = redact(raw); err != nil {
		return a, err
	}
	return a, json.Unmarshal(a.Raw, &a.Value)
}
