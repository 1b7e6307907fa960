package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// workspaceRequest is a [workspace.Request] on the socket. Only the relay's own user can
// open it, so the secret goes over it as it is.
type workspaceRequest struct {
	workspace.Request
	Secret string `json:"secret,omitempty"`
}

// ReadWorkspace performs a reading operation.
func (c *Client) ReadWorkspace(ctx context.Context, r workspace.Request) (out workspace.Outcome, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/workspace/read", onWire(r), &out)
}

// PlanWorkspace previews a mutation.
func (c *Client) PlanWorkspace(ctx context.Context, r workspace.Request) (p workspace.Plan, err error) {
	return p, c.call(ctx, http.MethodPost, "/v1/workspace/plan", onWire(r), &p)
}

// ActOnWorkspace performs a mutation.
func (c *Client) ActOnWorkspace(ctx context.Context, r workspace.Request) (out workspace.Outcome, err error) {
	return out, c.call(ctx, http.MethodPost, "/v1/workspace/do", onWire(r), &out)
}

func onWire(r workspace.Request) workspaceRequest {
	return workspaceRequest{Request: r, Secret: r.Secret.Reveal()}
}

// onDesk serves one method of the desk.
func onDesk[T any](s *Server, method func(*workspace.Desk, context.Context, workspace.Request) (T, error)) http.HandlerFunc {
	return answers(func(ctx context.Context, req workspaceRequest) (v T, err error) {
		desk, err := s.opts.Desk()
		if err != nil {
			return v, refuse(http.StatusServiceUnavailable, "%v", err)
		}
		req.Request.Secret, req.Person = secret.New(req.Secret), personOf(ctx)
		v, err = method(desk, ctx, req.Request)
		var api *management.APIError
		if errors.As(err, &api) && api.URL != "" {
			err = fmt.Errorf("%w; see %s", err, api.URL)
		}
		return v, err
	})
}
