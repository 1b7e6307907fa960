package config

import (
	"net/url"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// NATS delivers to NATS.
type NATS struct {
	// URL is nats://HOST:PORT, several joined with commas.
	URL string `yaml:"url" check:"required"`
	// Subject may hold {type}, {project} and {environment}. Each becomes one token, with
	// forbidden characters escaped. A {type} at the end keeps its dots, so that subscribers to
	// auditrelay.*.*.settings.> get settings.changed. Default
	// auditrelay.{project}.{environment}.{type}.
	Subject string `yaml:"subject" default:"auditrelay.{project}.{environment}.{type}"`
	// Mode is jetstream (acknowledged, the default) or core (at most once: NATS does
	// not acknowledge, and a message without a subscriber is gone).
	Mode string `yaml:"mode" default:"jetstream" check:"jetstream|core"`
	// CreateStream is the name of a stream for the subjects of Subject, which is made if it is
	// missing.
	CreateStream string `yaml:"create_stream"`
	// CredentialsFile is a .creds file, NKeyFile a seed file, Token a token, and Username and
	// Password a pair. At most one of the four may be given.
	CredentialsFile string      `yaml:"credentials_file"`
	NKeyFile        string      `yaml:"nkey_file"`
	Token           secret.Text `yaml:"token"`
	Username        string      `yaml:"username"`
	Password        secret.Text `yaml:"password"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

func (c *NATS) check(k *checker, at string, _ *Sink) {
	if c.URL != "" {
		k.natsURLs(at+".url", c.URL)
	}
	if k.template(at+".subject", c.Subject) && !isSubject(c.Subject) {
		k.fail(at+".subject", c.Subject, `must be tokens joined with ".": none empty, no spaces, no "*" and ">"`)
	}
	if c.CreateStream != "" {
		k.name(at+".create_stream", c.CreateStream)
		k.failIf(c.Mode == "core", at+".create_stream", c.CreateStream, "needs mode: jetstream")
	}
	k.natsCredentials(at, c)
	if (!c.Token.Empty() || !c.Password.Empty()) && c.TLS == nil && inTheClear(c.URL) {
		k.warn(at+".url", "the password or token goes over the network in the clear; write tls:// (or set tls), or use credentials_file or nkey_file")
	}
}

func isSubject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
			return false
		}
	}
	return true
}

// inTheClear reports whether one of the addresses is reached over a network without TLS.
func inTheClear(addresses string) bool {
	for address := range strings.SplitSeq(addresses, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err == nil && (u.Scheme == "nats" || u.Scheme == "ws") && !IsLoopback(u.Hostname()) {
			return true
		}
	}
	return false
}

func (k *checker) natsCredentials(at string, c *NATS) {
	pair := c.Username != "" || !c.Password.Empty()
	if count(c.CredentialsFile != "", c.NKeyFile != "", !c.Token.Empty(), pair) > 1 {
		k.fail(at, nil, "must have at most one of credentials_file, nkey_file, token, and username with password")
	}
	k.login(at, c.Username, c.Password)
}
