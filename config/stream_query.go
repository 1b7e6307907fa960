package config

import (
	"cmp"

	"github.com/auditrelay/auditrelay/config/secret"
)

// LokiQuery asks a Loki for its newest event, in order to watch a stream that ends there
// instead of at the relay.
type LokiQuery struct {
	// Selector selects the environment's streams in LogQL, such as {app="idp"}.
	Selector string `yaml:"selector" check:"required"`
	// URL is the Loki's address, before /loki/api/v1: https, except for loopback. Default:
	// the hostname of pushes.
	URL string `yaml:"url"`
	// Username and Password may read. Default: those for pushes.
	Username string      `yaml:"username"`
	Password secret.Text `yaml:"password"`
	// Tenant is sent as X-Scope-OrgID. Default: none is sent.
	Tenant string `yaml:"tenant"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

// Asked reports whether the stream ends at a foreign destination that the relay can ask for its
// newest event.
func (s *Stream) Asked() bool {
	return s != nil && (s.GrafanaLoki != nil && s.GrafanaLoki.Query != nil || s.Datadog != nil && !s.Datadog.ApplicationKey.Empty())
}

// searchHosts are the hosts of Datadog's API, by the sites of the Workspace Management
// API.
var searchHosts = map[string]string{
	"US": "datadoghq.com", "US3": "us3.datadoghq.com", "US5": "us5.datadoghq.com", "EU": "datadoghq.eu", "AP1": "ap1.datadoghq.com",
}

// SearchAddress is the address of Datadog's API, without a path; empty if it is not known.
func (s *StreamDatadog) SearchAddress() string {
	if host := searchHosts[s.Site]; s.SearchURL == "" && host != "" {
		return "https://api." + host
	}
	return s.SearchURL
}

// QueryAddress returns the address of the Loki to ask.
func (s *StreamGrafanaLoki) QueryAddress() string {
	return cmp.Or(s.Query.URL, "https://"+s.Hostname)
}

func (k *checker) lokiQuery(at string, q *LokiQuery) {
	if q == nil {
		k.warn(at, "is left out: the relay does not see whether events arrive at this Loki")
		return
	}
	if q.Selector != "" && (q.Selector[0] != '{' || q.Selector[len(q.Selector)-1] != '}') {
		k.fail(at+".selector", q.Selector, `must be a selector of streams in braces, such as {app="idp"}, without a pipeline`)
	}
	k.baseURL(at+".url", q.URL, "https://loki.example.com", "username and password")
	if k.login(at, q.Username, q.Password) {
		k.username(at+".username", q.Username)
	}
	if !all(q.Tenant, isTenant) {
		k.fail(at+".tenant", q.Tenant, `must be letters, digits and !-_.*'()`)
	}
}

func (k *checker) datadogSearch(at string, s *StreamDatadog) {
	if s.ApplicationKey.Empty() {
		if s.Search != "" || s.SearchURL != "" {
			k.fail(at+".application_key", nil, "is required, to search the logs; write ${NAME} for an environment variable, or file:PATH")
			return
		}
		k.warn(at+".application_key", "is left out: the relay does not see whether events arrive at Datadog")
		return
	}
	k.required(at+".search", s.Search)
	switch {
	case s.SearchURL != "":
		k.baseURL(at+".search_url", s.SearchURL, "https://api.datadoghq.com", "api_key and application_key")
	case s.Site != "" && s.SearchAddress() == "":
		k.fail(at+".search_url", nil, "is required, as the address of this site's API is not known")
	}
}
