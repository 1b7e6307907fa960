package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/management"
	"github.com/auditrelay/auditrelay/internal/workspace"
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

// serveDesk serves one method of the desk.
func serveDesk[T any](s *Server, method func(*workspace.Desk, context.Context, workspace.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := askDesk(s, w, r, method)
		if err != nil {
			s.fail(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

func askDesk[T any](s *Server, w http.ResponseWriter, r *http.Request, method func(*workspace.Desk, context.Context, workspace.Request) (T, error)) (v T, err error) {
	var req workspaceRequest
	if err := readJSON(w, r, &req); err != nil {
		return v, err
	}
	desk, err := s.opts.Desk()
	if err != nil {
		return v, refuse(http.StatusServiceUnavailable, "%v", err)
	}
	req.Request.Secret, req.Person = secret.New(req.Secret), personOf(r.Context())
	v, err = method(desk, r.Context(), req.Request)
	var api *management.APIError
	if errors.As(err, &api) && api.URL != "" {
		err = fmt.Errorf("%w; see %s", err, api.URL)
	}
	switch {
	case errors.Is(err, workspace.ErrUsage):
		err = refuse(http.StatusBadRequest, "%v", err)
	case errors.Is(err, workspace.ErrChanged), errors.Is(err, workspace.ErrUnderWay):
		err = refuse(http.StatusConflict, "%v", err)
	}
	return v, err
}
