package workspacesim

import (
	"fmt"
	"log/slog"
	"net/http"
)

// Operation 13.
func (s *Simulator) getStreaming(c *call) (map[string]any, *apiError) {
	kind, fail := destinationType(c)
	if fail != nil {
		return nil, fail
	}
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	if e.streaming == nil || e.streaming.destinationType != kind {
		return nil, notFound("event_log_streaming_config_not_found",
			"Environment %q of project %q does not stream to %s.", e.slug, e.project, kind)
	}
	return map[string]any{"event_log_streaming_config": e.streaming.read()}, nil
}

// Operation 14.
func (s *Simulator) setStreaming(c *call) (map[string]any, *apiError) {
	kind, fail := destinationType(c)
	if fail != nil {
		return nil, fail
	}
	e, fail := s.environment(c)
	if fail != nil {
		return nil, fail
	}
	config := s.parseDestination(kind, c.body)
	c.body.done()
	if err := c.body.err(); err != nil {
		return nil, badRequest("%s.", err)
	}
	if fail := s.mayPut(e, kind); fail != nil {
		return nil, fail
	}
	if s.opts.PutKeepsStatus && e.streaming != nil && e.streaming.destinationType == kind {
		config = config.with(e.streaming.status)
	}
	s.setConfig(e, config)
	s.log.Info("streaming config set", slog.String("project", e.project), slog.String("environment", e.slug),
		slog.String("destination_type", kind), slog.String("hostname", config.hostname), slog.String("site", config.site))
	return map[string]any{"event_log_streaming_config": config.write()}, nil
}

// mayPut refuses operation 14 where it would create a config, or replace one of the other
// type, and the modes forbid it.
func (s *Simulator) mayPut(e *environment, kind string) *apiError {
	switch {
	case e.streaming == nil && s.opts.PutNeedsConfig:
		return notFound("event_log_streaming_config_not_found",
			"Environment %q of project %q has no event log streaming config to update. Create it in the dashboard.", e.slug, e.project)
	case e.streaming != nil && e.streaming.destinationType != kind && s.opts.PutNeedsSameType:
		return &apiError{
			status: http.StatusConflict, kind: "event_log_streaming_destination_type_mismatch",
			message: fmt.Sprintf("Environment %q of project %q streams to %s. Delete that config in the dashboard, and create one of type %s.",
				e.slug, e.project, e.streaming.destinationType, kind),
		}
	}
	return nil
}

func destinationType(c *call) (string, *apiError) {
	kind := c.params["destination_type"]
	if kind != typeDatadog && kind != typeLoki {
		return "", badRequest("destination_type: %q is not one of %s, %s.", kind, typeDatadog, typeLoki)
	}
	return kind, nil
}

// parseDestination takes destination_config out of body: an object with the one key for
// kind.
func (s *Simulator) parseDestination(kind string, body *object) *streamingConfig {
	key, parse := "datadog", s.parseDatadog
	if kind == typeLoki {
		key, parse = "grafana_loki", s.parseLoki
	}
	outer := body.object("destination_config")
	if outer == nil {
		return nil
	}
	inner := outer.object(key)
	outer.done()
	if inner == nil {
		return nil
	}
	config := parse(inner)
	inner.done()
	return config
}
