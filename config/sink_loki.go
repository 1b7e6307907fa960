package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Loki delivers to a Loki, by its push API. A body becomes a line, byte for byte.
type Loki struct {
	// URL is the push endpoint, such as https://loki.example.com/loki/api/v1/push. It must be
	// https, except for loopback.
	URL string `yaml:"url" check:"required"`
	// Tenant is sent as X-Scope-OrgID. It may hold {type}, {project} and
	// {environment}. Default: none is sent.
	Tenant string `yaml:"tenant"`
	// Labels are the streams' labels; values may hold {type}, {project} and {environment}. Keep
	// the number of their values low. Everything else is sent as structured metadata. A label
	// with an empty value is left out of the event's stream. Default: service_name
	// "auditrelay", project and environment.
	Labels map[string]string `yaml:"labels"`
	// LineBytes, MetadataBytes and MetadataEntries are Loki's own limits,
	// checked before sending: max_line_size, max_structured_metadata_size and
	// max_structured_metadata_entries_count. Defaults 256KiB, 64KiB and 128.
	LineBytes       Size `yaml:"line_bytes" default:"256KiB" check:"1KiB..64MiB"`
	MetadataBytes   Size `yaml:"metadata_bytes" default:"64KiB" check:"1KiB..16MiB"`
	MetadataEntries int  `yaml:"metadata_entries" default:"128" check:"16..10000"`
	// LateAfter is how much older than the newest event of its stream an event may be for Loki
	// to take it: half of its max_chunk_age. An older one goes into a separate stream, with the
	// label late. Default 1h.
	LateAfter time.Duration `yaml:"late_after" default:"1h" check:"1m..720h"`
	// Username and Password are for Basic authentication; BearerToken replaces them.
	Username    string      `yaml:"username"`
	Password    secret.Text `yaml:"password"`
	BearerToken secret.Text `yaml:"bearer_token"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

func (c *Loki) setDefaults(*Sink) {
	if len(c.Labels) == 0 {
		c.Labels = map[string]string{
			"service_name": "auditrelay", "project": "{project}", "environment": "{environment}",
		}
	}
}

// Loki's own limits of labels, which are seldom changed. One name is reserved for the label
// late.
const (
	maxLokiLabels     = 14
	maxLokiLabelName  = 1024
	maxLokiLabelValue = 2048
)

func (c *Loki) check(k *checker, at string, _ *Sink) {
	k.url(at+".url", c.URL, address{
		form:  "the push endpoint, such as https://loki.example.com/loki/api/v1/push, without ? and #",
		login: ": an address is shown in logs; use username and password",
		https: ", since events and credentials are sent to it",
		path:  true,
	})
	if k.template(at+".tenant", c.Tenant) && !all(c.Tenant, isTenant) {
		k.fail(at+".tenant", c.Tenant, `must be letters, digits and !-_.*'(), and placeholders`)
	}
	if n := len(c.Labels); n > maxLokiLabels {
		k.fail(at+".labels", nil, fmt.Sprintf("must be at most %d labels, and has %d", maxLokiLabels, n))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		k.lokiLabel(at+".labels."+name, name, c.Labels[name])
	}
	if k.login(at, c.Username, c.Password) && !c.BearerToken.Empty() {
		k.fail(at, nil, "must have at most one of bearer_token, and username with password")
	}
}

func isTenant(r rune) bool {
	return isWord(r) || strings.ContainsRune("!.*'(){}", r)
}

// lokiLabel checks one label. The names of the structured metadata are taken, since nobody
// could query one name with two values.
func (k *checker) lokiLabel(path, name, value string) {
	switch {
	case !isLokiName(name):
		k.fail(path, nil, `must be named with letters, digits and "_", with no digit and no "__" at the start`)
	case name == "late":
		k.fail(path, nil, "is the label of late entries; choose another name")
	case slices.Contains([]string{"id", "source", "subject", "receivedtime", "datacontenttype"}, name):
		k.fail(path, nil, "is the name of an attribute, sent as structured metadata; choose another name")
	case slices.Contains(placeholders(), name) && value != "{"+name+"}":
		k.fail(path, value, "must be {"+name+"}: it is the name of that attribute; choose another name for anything else")
	case value == "":
		k.fail(path, nil, "is required; remove the label, or give it a value")
	case len(value) > maxLokiLabelValue || len(name) > maxLokiLabelName:
		k.fail(path, nil, fmt.Sprintf("must have a name of at most %d bytes and a value of at most %d", maxLokiLabelName, maxLokiLabelValue))
	default:
		k.template(path, value)
	}
}

func isLokiName(name string) bool {
	plain := func(r rune) bool { return isWord(r) && r != '-' }
	return name != "" && !strings.HasPrefix(name, "__") && (name[0] < '0' || name[0] > '9') && all(name, plain)
}
