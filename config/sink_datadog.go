package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Datadog delivers to Datadog's logs intake.
type Datadog struct {
	// APIKey is an API key of the organisation; an application key is not needed.
	APIKey secret.Text `yaml:"api_key" check:"required"`
	// Site is the Datadog site, such as datadoghq.com (the default), us3.datadoghq.com or
	// datadoghq.eu. URL, such as https://intake.example.com, replaces it: the address of a
	// proxy or another intake, before /api/v2/logs. It must be https, except for loopback.
	Site string `yaml:"site"`
	URL  string `yaml:"url"`
	// Source, Service and Hostname are the entries' ddsource, service and
	// hostname; they may hold {type}, {project} and {environment}. Defaults
	// auditrelay, auditrelay and none.
	Source   string `yaml:"source" default:"auditrelay"`
	Service  string `yaml:"service" default:"auditrelay"`
	Hostname string `yaml:"hostname"`
	// Tags are the entries' ddtags, with the same placeholders; a tag whose values are empty is
	// left out. Default env:{environment} and project:{project}.
	Tags []string `yaml:"tags"`
	// Attributes says where the fields of a JSON body go in addition to the message, which is
	// the body itself: merged (as @action, the default; below event, as @event.status, where
	// Datadog uses the name itself), nested (all below event), or none, which takes half the
	// bytes.
	Attributes string `yaml:"attributes" default:"merged" check:"merged|nested|none"`
	// Oversize decides about an entry that exceeds the intake's 1 MB: reject (to the dead
	// letters, the default) or truncate (cut, and marked as such).
	Oversize string `yaml:"oversize" default:"reject" check:"reject|truncate"`
	// OutsideWindow decides about an event that is more than 18 h old, or 2 h ahead, which the
	// intake would drop without a word: reject (to the dead letters, the default) or restamp
	// (sent with the time of sending; its own time is in @ce.time, and @auditrelay.restamped is
	// true).
	OutsideWindow string `yaml:"outside_window" default:"reject" check:"reject|restamp"`
	// Compression is gzip (default), deflate or none.
	Compression string `yaml:"compression" default:"gzip" check:"gzip|deflate|none"`
	// TLS is for the intake.
	TLS *TLSClient `yaml:"tls"`
}

// datadogSites are the sites of November 2026.
func datadogSites() []string {
	return []string{
		"datadoghq.com", "us3.datadoghq.com", "us5.datadoghq.com", "ap1.datadoghq.com", "ap2.datadoghq.com",
		"uk1.datadoghq.com", "datadoghq.eu", "ddog-gov.com", "us2.ddog-gov.com",
	}
}

func (c *Datadog) setDefaults(*Sink) {
	if c.URL == "" {
		setDefault(&c.Site, "datadoghq.com")
	}
	if c.Tags == nil {
		c.Tags = []string{"env:{environment}", "project:{project}"}
	}
}

// datadogKey warns of a key that Datadog did not make. That is no error, since the form is
// Datadog's and may change.
func (k *checker) datadogKey(path string, key secret.Text) {
	hex := func(r rune) bool { return strings.ContainsRune("0123456789abcdefABCDEF", r) }
	if text := key.Reveal(); text != "" && (len(text) != 32 || !all(text, hex)) {
		k.warn(path, "is not an API key of Datadog's form, 32 hexadecimal digits; copy the key itself, and neither its id nor an application key")
	}
}

func (c *Datadog) check(k *checker, at string, _ *Sink) {
	if !all(c.APIKey.Reveal(), func(r rune) bool { return r > ' ' && r <= '~' }) {
		k.fail(at+".api_key", nil, "holds a space or a non-ASCII character; copy the key alone")
	}
	switch {
	case c.URL == "":
		k.datadogKey(at+".api_key", c.APIKey)
		k.datadogSite(at+".site", c.Site)
	case c.Site != "":
		k.fail(at+".url", nil, "replaces site, and site is set too; remove one of them")
	default:
		k.url(at+".url", c.URL, address{
			form:  "an address such as https://intake.example.com, without ? and #",
			login: ": an address is shown in logs; use api_key",
			https: ", since the key is sent with each request",
			bare:  "/api/v2/logs is appended to it",
		})
	}
	k.template(at+".source", c.Source)
	k.template(at+".service", c.Service)
	k.template(at+".hostname", c.Hostname)
	for i, tag := range c.Tags {
		path := fmt.Sprintf("%s.tags[%d]", at, i)
		if k.template(path, tag) && (tag == "" || strings.Contains(tag, ",")) {
			k.fail(path, tag, "must be one tag, such as team:iam; give each tag an item of its own")
		}
	}
	k.failIf(c.TLS != nil && strings.HasPrefix(c.URL, "http:"), at+".tls", nil, "is for https, and url is http; remove one of them")
}

// datadogSite accepts unknown names, since there will be new sites.
func (k *checker) datadogSite(path, site string) {
	switch {
	case slices.Contains(datadogSites(), site):
	case !isHost(site) || !strings.Contains(site, "."):
		k.fail(path, site, "must be a site's name alone, such as datadoghq.eu or us3.datadoghq.com: no scheme, no path, no app. before it")
	case strings.HasPrefix(site, "app."), strings.HasPrefix(site, "api."), strings.HasPrefix(site, "http-intake."):
		k.fail(path, site, "must be the site alone, such as datadoghq.eu or us3.datadoghq.com, without app., api. or http-intake.logs. before it")
	default:
		k.warn(path, "is none of the known sites ("+strings.Join(datadogSites(), ", ")+"); check the name, unless it is a new one")
	}
}
