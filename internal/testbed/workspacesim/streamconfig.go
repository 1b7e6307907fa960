package workspacesim

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The destination types of operations 13 and 14.
const (
	typeDatadog = "DATADOG"
	typeLoki    = "GRAFANA_LOKI"
)

// StatusActive is the only streaming_status with events streamed. Any other text is a
// status too.
const (
	StatusActive   = "ACTIVE"
	StatusDisabled = "DISABLED"
)

// streamingConfig is an environment's one event log streaming config. It is
// never changed, only replaced.
type streamingConfig struct {
	destinationType string
	status          string

	site   string // DATADOG
	apiKey secret.Text

	hostname string // GRAFANA_LOKI
	username string
	password secret.Text
}

// write is the answer of operation 14, with the secrets in full.
func (c *streamingConfig) write() map[string]any {
	if c.destinationType == typeDatadog {
		return c.shape("datadog", map[string]any{"api_key": c.apiKey.Reveal(), "site": c.site})
	}
	return c.shape("grafana_loki", map[string]any{
		"hostname": c.hostname, "username": c.username, "password": c.password.Reveal(),
	})
}

// read is the answer of operation 13, with the secrets masked.
func (c *streamingConfig) read() map[string]any {
	if c.destinationType == typeDatadog {
		return c.shape("datadog", map[string]any{"api_key_last_four": lastFour(c.apiKey), "site": c.site})
	}
	return c.shape("grafana_loki", map[string]any{
		"hostname": c.hostname, "username": c.username, "password_last_four": lastFour(c.password),
	})
}

func (c *streamingConfig) shape(key string, destination map[string]any) map[string]any {
	return map[string]any{
		"destination_type":   c.destinationType,
		"destination_config": map[string]any{key: destination},
		"streaming_status":   c.status,
	}
}

// lastFour is the service's mask of a secret. Unlike [secret.Text.LastFour] it always
// shows four characters, also of short ones.
func lastFour(t secret.Text) string {
	s := t.Reveal()
	return s[max(0, len(s)-4):]
}

// with returns a copy with another status.
func (c *streamingConfig) with(status string) *streamingConfig {
	changed := *c
	changed.status = status
	return &changed
}

// datadogSites are the sites known from public clients.
var datadogSites = []string{"US", "US3", "US5", "EU", "AP1"}

// parseDatadog reads operation 14's destination_config.datadog.
func (s *Simulator) parseDatadog(o *object) *streamingConfig {
	c := &streamingConfig{destinationType: typeDatadog, status: s.opts.NewConfigStatus}
	c.apiKey = secret.New(o.text("api_key"))
	c.site = o.text("site")
	if c.site != "" && !s.knownSite(c.site) {
		o.fail("site", fmt.Sprintf("%q is not one of %s", c.site, strings.Join(datadogSites, ", ")))
	}
	return c
}

func (s *Simulator) knownSite(site string) bool {
	return slices.Contains(datadogSites, site) || s.opts.DatadogSites[site] != ""
}

// parseLoki reads operation 14's destination_config.grafana_loki.
func (s *Simulator) parseLoki(o *object) *streamingConfig {
	c := &streamingConfig{destinationType: typeLoki, status: s.opts.NewConfigStatus}
	c.hostname = o.text("hostname")
	c.username = o.text("username")
	c.password = secret.New(o.text("password"))
	if c.hostname != "" && !s.validHostname(c.hostname) {
		o.fail("hostname", "must be a host name without scheme, path or port (a port only on loopback)")
	}
	return c
}

var hostname = regexp.MustCompile(`^(?i:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)(?i:\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)

func (s *Simulator) validHostname(h string) bool {
	if s.isLocal(h) {
		return true
	}
	return len(h) <= 253 && hostname.MatchString(h)
}

// isLocal reports whether to push to h, HOST or HOST:PORT, over plain HTTP: a loopback
// address, localhost, or one of [Options.LocalHosts].
func (s *Simulator) isLocal(h string) bool {
	host, port, err := net.SplitHostPort(h)
	if err != nil {
		host = strings.Trim(h, "[]")
	} else if !validPort(port) {
		return false
	}
	if host == "localhost" || slices.Contains(s.opts.LocalHosts, host) {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() && addr.Zone() == ""
}

func validPort(port string) bool {
	_, err := netip.ParseAddrPort("127.0.0.1:" + port)
	return err == nil
}
