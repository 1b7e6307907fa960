package console

import (
	"context"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config"
)

// Reload asks for the edited configuration to be applied.
type Reload struct {
	// DryRun tells what would change, and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// File is the absolute path of another configuration file to compare with, in a dry run; empty
	// for the relay's own. The relay reads it.
	File string `json:"file,omitempty"`
}

// Reloaded is the result of a reload.
type Reloaded struct {
	// Applied: the relay runs with the edited configuration. It is false after a dry run, and where
	// a change takes a restart: then nothing at all was applied.
	Applied bool `json:"applied"`
	DryRun  bool `json:"dry_run"`
	// Refused is why a reload would be refused, after a dry run: a part of the configuration cannot be used, such
	// as a sink's certificate. It says nothing about changes that take a restart.
	Refused string `json:"refused,omitempty"`
	// Changes are the fields that differ from the running configuration.
	Changes []config.Change `json:"changes"`
	// Files are fields whose files have changed, while their names have not.
	Files []string `json:"files"`
	// ChangingOver are sinks that still finish a delivery as they were before. Each goes on with its
	// new configuration when that has ended, and holds up nothing else.
	ChangingOver []string `json:"changing_over"`
	// ConfigSHA256 is the hash of the configuration's outline, as in the audit trail's entries.
	ConfigSHA256 string `json:"config_sha256"`
}

// Restarts are the changes that take a restart.
func (r *Reloaded) Restarts() []config.Change {
	return slices.DeleteFunc(slices.Clone(r.Changes), func(c config.Change) bool { return c.Rule != config.Restart })
}

func (s *Server) reload(ctx context.Context, req Reload) (Reloaded, error) {
	if req.File != "" && !req.DryRun {
		return Reloaded{}, refuse(http.StatusBadRequest, "a relay reloads the file that it was started with; another one can only be compared with it")
	}
	done, err := s.opts.Reload(ctx, req)
	if err != nil {
		return done, refuse(http.StatusConflict, "%v", err)
	}
	return done, nil
}

// Reload applies the edited configuration of the relay.
func (c *Client) Reload(ctx context.Context, req Reload) (done Reloaded, err error) {
	return done, c.call(ctx, "/v1/reload", req, &done)
}
