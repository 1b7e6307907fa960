package config

import (
	"maps"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Traces are OpenTelemetry traces of pushes, with their commit and the delivery to each sink.
// They contain no events.
type Traces struct {
	// Endpoint takes spans by OTLP over HTTP, and includes the path: https, except for
	// loopback. Default: no traces.
	Endpoint string `yaml:"endpoint"`
	// Ratio is the share of pushes that are traced, above 0 and at most 1. Default 0.001.
	Ratio float64 `yaml:"ratio" default:"0.001"`
	// Headers are sent with each request, such as Authorization.
	Headers map[string]secret.Text `yaml:"headers"`
	// TLS is for Endpoint.
	TLS *TLSClient `yaml:"tls"`
}

func (k *checker) traces(t Traces) {
	if t.Endpoint == "" {
		return
	}
	k.url("traces.endpoint", t.Endpoint, address{
		form:  "an address such as https://otel.example.com:4318/v1/traces, without ? and #",
		login: "; send them in headers, as Authorization",
		https: ", since the headers are sent to it",
	})
	between(k, "traces.ratio", t.Ratio, 0.000001, 1)
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		path := join("traces.headers", printable(name, false))
		if http.CanonicalHeaderKey(name) == "Content-Type" || http.CanonicalHeaderKey(name) == "User-Agent" {
			k.fail(path, nil, "is set by the relay on each request; remove it")
			continue
		}
		k.webhookHeader(path, name, t.Headers[name])
	}
}
