package workspacesim

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/auditrelay/auditrelay/config/secret"
)

// StreamingConfig is an environment's streaming config as the dashboard shows it.
type StreamingConfig struct {
	Project     string `json:"project_slug"`
	Environment string `json:"environment_slug"`
	// Config is operation 13's event_log_streaming_config, secrets masked; null: none.
	Config map[string]any `json:"event_log_streaming_config"`
}

// StreamingConfigs lists the streaming config of each environment, in the order of Environments.
func (s *Simulator) StreamingConfigs() []StreamingConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []StreamingConfig
	for _, e := range s.environments() {
		c := StreamingConfig{Project: e.project, Environment: e.slug}
		if e.streaming != nil {
			c.Config = e.streaming.read()
		}
		list = append(list, c)
	}
	return list
}

// CreateStreaming creates an environment's streaming config in the dashboard, where it has
// none. destination is the destination_config of operation 14, and the status is
// [Options.NewConfigStatus].
func (s *Simulator) CreateStreaming(projectSlug, environmentSlug, destinationType string, destination json.RawMessage) error {
	if destinationType != typeDatadog && destinationType != typeLoki {
		return fmt.Errorf("create streaming config: destination type %q is not one of %s, %s", destinationType, typeDatadog, typeLoki)
	}
	body, err := parseBody(fmt.Appendf(nil, `{"destination_config":%s}`, destination))
	if err != nil {
		return fmt.Errorf("create streaming config: %w", err)
	}
	config := s.parseDestination(destinationType, body)
	if err := body.err(); err != nil {
		return fmt.Errorf("create streaming config: %w", err)
	}
	return s.inDashboard("create streaming config", projectSlug, environmentSlug, func(e *environment) (*streamingConfig, error) {
		if e.streaming != nil {
			return nil, fmt.Errorf("there is one of type %s: delete it first", e.streaming.destinationType)
		}
		return config, nil
	})
}

// StreamingEdit changes parts of a streaming config. Empty fields stay as they are.
type StreamingEdit struct {
	Hostname string // GRAFANA_LOKI
	Username string // GRAFANA_LOKI
	Site     string // DATADOG
	// Secret is the password, or the API key.
	Secret secret.Text
	// SameLastFour makes up another secret, with the last four characters of the present one.
	SameLastFour bool
}

// EditStreaming changes an environment's streaming config in the dashboard.
func (s *Simulator) EditStreaming(projectSlug, environmentSlug string, edit StreamingEdit) error {
	return s.inDashboard("edit streaming config", projectSlug, environmentSlug, func(e *environment) (*streamingConfig, error) {
		if e.streaming == nil {
			return nil, errNoConfig
		}
		changed := *e.streaming
		return &changed, s.edit(&changed, edit)
	})
}

func (s *Simulator) edit(c *streamingConfig, edit StreamingEdit) error {
	loki := c.destinationType == typeLoki
	switch {
	case loki && edit.Site != "", !loki && edit.Hostname+edit.Username != "":
		return fmt.Errorf("a config of type %s has no such field", c.destinationType)
	case edit.Hostname != "" && !s.validHostname(edit.Hostname):
		return fmt.Errorf("hostname %q is not a host name", edit.Hostname)
	case edit.SameLastFour && !edit.Secret.Empty():
		return fmt.Errorf("give a secret, or the same last four, not both")
	case edit.Site != "" && !s.knownSite(edit.Site):
		return fmt.Errorf("site %q is unknown", edit.Site)
	}
	replace := func(field *string, by string) {
		if by != "" {
			*field = by
		}
	}
	replace(&c.hostname, edit.Hostname)
	replace(&c.username, edit.Username)
	replace(&c.site, edit.Site)
	held := &c.apiKey
	if loki {
		held = &c.password
	}
	if edit.SameLastFour {
		edit.Secret = secret.New(uuid(s.rng.Uint64(), s.rng.Uint64()) + lastFour(*held))
	}
	if !edit.Secret.Empty() {
		*held = edit.Secret
	}
	return nil
}

// DeleteStreaming deletes an environment's streaming config in the dashboard.
func (s *Simulator) DeleteStreaming(projectSlug, environmentSlug string) error {
	return s.inDashboard("delete streaming config", projectSlug, environmentSlug, func(e *environment) (*streamingConfig, error) {
		if e.streaming == nil {
			return nil, errNoConfig
		}
		return nil, nil //nolint:nilnil // no config is what a deletion leaves
	})
}

// SetStreamingStatus gives an environment's streaming config another streaming_status, as
// the dashboard would. Events are streamed under [StatusActive] only. It fails where there
// is no config.
func (s *Simulator) SetStreamingStatus(projectSlug, environmentSlug, status string) error {
	return s.inDashboard("set streaming status", projectSlug, environmentSlug, func(e *environment) (*streamingConfig, error) {
		if e.streaming == nil {
			return nil, errNoConfig
		}
		return e.streaming.with(status), nil
	})
}

var errNoConfig = fmt.Errorf("it has no streaming config")

// inDashboard replaces an environment's config by change's, as a person would in the dashboard:
// the API's modes and faults do not count.
func (s *Simulator) inDashboard(what, projectSlug, environmentSlug string, change func(*environment) (*streamingConfig, error)) error {
	e, err := s.find(projectSlug, environmentSlug)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := change(e)
	if err != nil {
		return fmt.Errorf("%s of %s/%s: %w", what, projectSlug, environmentSlug, err)
	}
	s.setConfig(e, c)
	s.log.Info("dashboard: "+what, slog.String("project", projectSlug), slog.String("environment", environmentSlug))
	return nil
}
