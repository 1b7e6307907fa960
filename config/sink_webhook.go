package config

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Webhook delivers by HTTPS POST. With the sink's format cloudevents, each request holds a
// batch of events in the JSON batch format of CloudEvents 1.0.2
// (application/cloudevents-batch+json); with ocsf one object on each line
// (application/x-ndjson); with slack one message of a chat.
//
// The sink's BatchEvents and BatchBytes default to 100 and 512KiB, as receivers
// of webhooks often take no more than 1 MiB.
type Webhook struct {
	// URL is the receiver's address: https, except for loopback. It is kept as a secret, since
	// many receivers have a credential in its path; errors and logs show only its host.
	URL secret.Text `yaml:"url"`
	// Format is the sink's format, which may be written here too.
	Format string `yaml:"format"`
	// Secret keys the HMAC-SHA256 signature of each request, by Standard Webhooks
	// 1.0.0 (webhook-id, webhook-timestamp, webhook-signature): whsec_ and the
	// key in base64, or the key itself. Default: requests are not signed.
	Secret secret.Text `yaml:"secret"`
	// Headers are sent with each request, such as Authorization. Content-Type and User-Agent
	// replace the relay's own.
	Headers map[string]secret.Text `yaml:"headers"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

func (c *Webhook) setDefaults(s *Sink) {
	setDefault(&s.Format, c.Format)
	setDefault(&s.BatchEvents, 100)
	setDefault(&s.BatchBytes, 512<<10)
	if s.Format == FormatSlack {
		setDefault(&s.BatchWait, 5*time.Second)
	}
}

// formats implements [ownFormats].
func (c *Webhook) formats() (own []string, here bool) { return []string{FormatSlack}, c.Format != "" }

func (c *Webhook) check(k *checker, at string, s *Sink) {
	k.failIf(c.URL.Empty(), at+".url", nil, "is required")
	k.webhookURL(at+".url", c.URL.Reveal())
	if c.Format != "" && c.Format != s.Format {
		k.fail(at+".format", c.Format, "must be the sink's format, which is "+shown(s.Format)+"; remove one of them")
	}
	if !c.Secret.Empty() {
		k.webhookSecret(at+".secret", c.Secret.Reveal())
	}
	canonical := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		path := join(at+".headers", printable(name, false))
		k.webhookHeader(path, name, c.Headers[name])
		k.failIf(canonical[http.CanonicalHeaderKey(name)], path, nil, "is given twice, as letters' case makes no difference; remove one")
		canonical[http.CanonicalHeaderKey(name)] = true
	}
}

func (k *checker) webhookURL(path, value string) {
	k.url(path, value, address{
		form:  "an address such as https://soar.example.com/hooks/auditrelay, without #",
		login: "; send them in headers, as Authorization",
		https: ", since the events and the headers are sent to it",
		query: true, secret: true,
	})
}

func (k *checker) webhookSecret(path, value string) {
	encoded, standard := strings.CutPrefix(value, "whsec_")
	if !standard {
		k.warnIf(len(value) < 24, path, "is shorter than 24 bytes; generate one, as by: echo whsec_$(openssl rand -base64 32)")
		return
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) < 24 || len(key) > 64 {
		k.fail(path, nil, "must have 24 to 64 bytes in base64 after whsec_, as by: echo whsec_$(openssl rand -base64 32)")
	}
}

// webhookHeader knows which headers the request sets itself.
func (k *checker) webhookHeader(path, name string, value secret.Text) {
	isToken := func(r rune) bool { return isWord(r) || strings.ContainsRune("!#$%&'*+.^`|~", r) }
	switch http.CanonicalHeaderKey(name) {
	case "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature":
		k.fail(path, nil, "is set by the relay on each request; remove it")
	case "Host", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Expect":
		k.fail(path, nil, "belongs to the connection and cannot be set; remove it")
	default:
		k.failIf(name == "" || !all(name, isToken), path, nil, "is not the name of a header")
	}
	k.failIf(value.Empty(), path, nil, "has no value; write ${NAME} for an environment variable, or file:PATH, or remove it")
}
