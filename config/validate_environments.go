package config

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

func (k *checker) environments(c *Config) {
	k.failIf(len(c.Environments) == 0, "environments", nil, "is required: at least one environment, with its project and environment slugs")
	first := map[string]string{} // an environment, and its first place
	seen := credentials{names: map[string]string{}, keys: map[secret.Text]string{}}
	for i, e := range c.Environments {
		at := fmt.Sprintf("environments[%d]", i)
		slug := k.slug(at+".project", e.Project)
		if k.slug(at+".environment", e.Environment) && slug {
			id := e.Project + "/" + e.Environment
			if before, twice := first[id]; twice {
				k.fail(at, nil, id+" is given at "+before+" already; keep one")
			} else {
				first[id] = at
			}
		}
		if e.Stream != nil {
			k.stream(at+".stream", e.Stream, c)
		}
		for n, credential := range e.Credentials {
			k.credential(fmt.Sprintf("%s.credentials[%d]", at, n), credential, seen)
		}
		k.quota(at+".quota", e.Quota, c.Journal)
		k.silent(at, e, c)
	}
}

func (k *checker) quota(at string, q Quota, j Journal) {
	const most = 1 << 40 // of both rates: far above any machine
	if q.EventsPerSecond != 0 {
		between(k, at+".events_per_second", q.EventsPerSecond, 0.01, most)
	}
	if q.BytesPerSecond != 0 {
		between(k, at+".bytes_per_second", q.BytesPerSecond, 1, most)
	}
	if q.UndeliveredBytes != 0 {
		between(k, at+".undelivered_bytes", q.UndeliveredBytes, 1<<20, j.MaxBytes)
	}
}

// silent warns of an environment without anything to see.
func (k *checker) silent(at string, e Environment, c *Config) {
	watched := c.Workspace != nil && (!e.SkipSettings || e.Stream != nil)
	pushed := e.Stream != nil && !e.Stream.Observe || len(e.Credentials) > 0 || c.Ingest.Anonymous == e.Project+"/"+e.Environment
	k.warnIf(!watched && !pushed, at, "nothing can push to this environment and nothing of it is watched; give it a stream, or credentials")
}

// slug checks a part of the API's paths. The API leaves the characters open, so it
// refuses only those unfit for a path or a CloudEvents source.
func (k *checker) slug(path, value string) bool {
	if !k.required(path, value) {
		return false
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '/' }) || strings.Trim(value, ".") == "" {
		k.fail(path, value, `must be a slug: no "/", no spaces, no dots alone`)
		return false
	}
	return true
}

func (k *checker) stream(at string, s *Stream, c *Config) {
	if s.Relay != nil {
		k.hostname(at+".relay.hostname", s.Relay.Hostname)
		k.reachable(at+".relay.hostname", s.Relay.Hostname, c.Ingest)
	}
	if s.Datadog != nil {
		k.secret(at+".datadog.api_key", s.Datadog.APIKey)
		k.datadogKey(at+".datadog.api_key", s.Datadog.APIKey)
		k.datadogSearch(at+".datadog", s.Datadog)
	}
	if s.GrafanaLoki != nil {
		k.hostname(at+".grafana_loki.hostname", s.GrafanaLoki.Hostname)
		if k.required(at+".grafana_loki.username", s.GrafanaLoki.Username) {
			k.username(at+".grafana_loki.username", s.GrafanaLoki.Username)
		}
		k.secret(at+".grafana_loki.password", s.GrafanaLoki.Password)
		k.lokiQuery(at+".grafana_loki.query", s.GrafanaLoki.Query)
	}
	if count(s.Relay != nil, s.Datadog != nil, s.GrafanaLoki != nil) != 1 && !s.Observe {
		k.fail(at, nil, "must have exactly one of relay, datadog and grafana_loki: the API streams an environment to one place")
	}
	if c.Workspace == nil {
		k.fail(at, nil, "needs the workspace section, to configure streaming")
	}
}

// reachable warns if the provider cannot see its listener.
func (k *checker) reachable(path, value string, in Ingest) {
	host, ok := splitHostPort(value, 1)
	if !ok {
		host = value
	}
	listen, ok := splitHostPort(in.Listen, 0)
	if ok && IsLoopback(listen) && !IsLoopback(host) && !in.BehindProxy {
		k.warn(path, "the provider cannot reach a listener on loopback; set ingest.listen, or ingest.behind_proxy: true where a proxy forwards to it")
	}
}

// credentials are those seen so far, with where.
type credentials struct {
	names map[string]string
	keys  map[secret.Text]string
}

func (k *checker) credential(at string, c Credential, seen credentials) {
	if !c.APIKey.Empty() {
		k.failIf(c.Username != "" || !c.Password.Empty(), at, nil, "must be either username and password, or api_key, not both")
		if before, twice := seen.keys[c.APIKey]; twice {
			k.fail(at+".api_key", nil, "is given at "+before+" already; a key must belong to one environment")
		}
		seen.keys[c.APIKey] = at
		k.guessable(at+".api_key", c.APIKey)
		return
	}
	if !k.login(at, c.Username, c.Password) {
		k.fail(at, nil, "must have username and password, or api_key")
		return
	}
	k.guessable(at+".password", c.Password)
	if !k.username(at+".username", c.Username) {
		return
	}
	if before, twice := seen.names[c.Username]; twice {
		k.fail(at+".username", c.Username, "is given at "+before+" already; a user name must belong to one credential")
	}
	seen.names[c.Username] = at
}

// fewestBytes is the least length of a push credential: drawn at random, nobody guesses
// it over a network.
const fewestBytes = 16

func (k *checker) guessable(path string, value secret.Text) {
	if !value.Empty() && len(value.Reveal()) < fewestBytes {
		k.fail(path, nil, fmt.Sprintf("has fewer than %d bytes, and could be guessed; draw one such as openssl rand -base64 32 prints", fewestBytes))
	}
}

// username reports whether a user name, which is required elsewhere, is one of Basic authentication.
func (k *checker) username(path, value string) bool {
	if strings.Contains(value, ":") || strings.ContainsFunc(value, isControl) {
		k.fail(path, nil, `must hold no ":" and no control characters, as Basic authentication has it`)
		return false
	}
	return value != ""
}

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
	k.failIf(!all(q.Tenant, isTenant), at+".tenant", q.Tenant, `must be letters, digits and !-_.*'()`)
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
