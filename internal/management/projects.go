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

// CreateProject makes a project. The client never repeats this call: after an error other
// than an [APIError], the project may exist or not.
//
// The answer's shape is undocumented. Raw is its member "project" if there is one, else
// all of it, without secrets. Value has the fields found there.
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
	a, err := createdProject(r, c.scrub)
	if err != nil {
		return a, fmt.Errorf("%s: %w", k.operation, c.scrub.cleanError(err))
	}
	a.Raw = c.scrub.cleanRaw(a.Raw)
	return a, nil
}

func createdProject(r reply, scrub *scrubber) (Answer[Project], error) {
	members, receipt, err := r.members(scrub)
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
