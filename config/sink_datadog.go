package config

import "github.com/auditrelay/auditrelay/config/secret"

// Datadog delivers to Datadog's logs intake.
type Datadog struct {
	APIKey secret.Text `yaml:"api_key"`
	// Site is the Datadog site, such as datadoghq.com (the default) or
	// datadoghq.eu; URL is instead of it, for a proxy or another intake.
	Site string `yaml:"site"`
	URL  string `yaml:"url"`
	// Source, Service, Hostname and Tags are the entries' ddsource, service,
	// hostname and ddtags; they may hold {type}, {project} and {environment}.
	Source   string   `yaml:"source"`
	Service  string   `yaml:"service"`
	Hostname string   `yaml:"hostname"`
	Tags     []string `yaml:"tags"`
	// Oversize is what becomes of an entry over the intake's 1 MB: reject (to
	// the dead letters, the default) or truncate (cut, and marked as such).
	Oversize string `yaml:"oversize"`
	// Compression is gzip (default), deflate or none.
	Compression string     `yaml:"compression"`
	TLS         *TLSClient `yaml:"tls"`
}

func (c *Datadog) setDefaults() {}

func (k *checker) datadog(string, *Datadog) {}
