package config

import "github.com/auditrelay/auditrelay/config/secret"

// Loki delivers to a Loki, by its push API.
type Loki struct {
	// URL is the push endpoint, such as https://loki.example.com/loki/api/v1/push.
	URL string `yaml:"url"`
	// Tenant is sent as X-Scope-OrgID. It may hold {project} and {environment}.
	// Default: none is sent.
	Tenant string `yaml:"tenant"`
	// Labels are the streams' labels; values may hold {type}, {project} and
	// {environment}. Keep their number of values low. What is not a label goes
	// along as structured metadata. Default: service_name "auditrelay", project
	// and environment.
	Labels map[string]string `yaml:"labels"`
	// LineBytes and the like are Loki's own limits, checked before sending.
	// LineBytes is max_line_size, default 256KiB.
	LineBytes Size `yaml:"line_bytes"`
	// Username and Password are Basic authentication; BearerToken is instead of them.
	Username    string      `yaml:"username"`
	Password    secret.Text `yaml:"password"`
	BearerToken secret.Text `yaml:"bearer_token"`
	TLS         *TLSClient  `yaml:"tls"`
}

func (c *Loki) setDefaults() {}

func (k *checker) loki(string, *Loki) {}
