package config

import "github.com/auditrelay/auditrelay/config/secret"

// Webhook delivers JSON batches by HTTPS POST.
type Webhook struct {
	// URL is what is posted to. https, but for loopback.
	URL string `yaml:"url"`
	// Secret keys the HMAC-SHA256 signature of each request.
	Secret secret.Text `yaml:"secret"`
	// Headers go along with each request.
	Headers map[string]secret.Text `yaml:"headers"`
	TLS     *TLSClient             `yaml:"tls"`
}

func (c *Webhook) setDefaults() {}

func (k *checker) webhook(string, *Webhook) {}
