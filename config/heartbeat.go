package config

import (
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Heartbeat calls a dead-man's switch: a service that raises an alarm when the calls stop.
type Heartbeat struct {
	// URL is posted to as long as pushes are taken: https, except for loopback. It is kept as a
	// secret, since that is what it is with many services. Default: no calls.
	URL secret.Text `yaml:"url"`
	// Interval is the time between two calls, from 1s to 24h. Default 1m.
	Interval time.Duration `yaml:"interval" default:"1m" check:"1s..24h"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

func (k *checker) heartbeat(h Heartbeat) {
	if !h.URL.Empty() {
		k.webhookURL("heartbeat.url", h.URL.Reveal())
	}
}
