package config

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Console shows the relay's state in a browser, and lets people act on it by their roles: a viewer
// sees states, an auditor also sees what events say and reviews changes, and an operator also acts.
// Whoever opens a link from `auditrelay console open` is an operator.
type Console struct {
	// Listen is HOST:PORT. Default: no console.
	Listen string `yaml:"listen"`
	// TLS is required where Listen is not loopback.
	TLS *TLSServer `yaml:"tls"`
	// URL is the console's address in browsers, without a path, such as
	// https://audit.example.com. Only by its host name and as localhost does the console answer,
	// since a web page can point a name of its own at the listener. Default: localhost alone.
	URL string `yaml:"url"`
	// OIDC lets people log in at an OpenID Connect provider.
	OIDC *OIDC `yaml:"oidc"`
	// Certificates let people in who show a client certificate.
	Certificates *ConsoleCertificates `yaml:"certificates"`
	// SessionLength is when a session ends, from 5m to 168h after its login. Default 8h.
	SessionLength time.Duration `yaml:"session_length" default:"8h" check:"5m..168h"`
	// IdleLength is when a session ends that is not used, from 1m to 168h. Default 1h.
	IdleLength time.Duration `yaml:"idle_length" default:"1h" check:"1m..168h"`
	// Redact takes fields out of the events that viewers see, as that of a sink does. Default:
	// viewers see events without their bodies and labels.
	Redact *Redact `yaml:"redact"`
}

// OIDC is the relay as a client of an OpenID Connect provider, by the code flow with PKCE. The
// redirect address to register at the provider is console.url with the path /login/callback.
type OIDC struct {
	// Issuer is the provider's address, as it writes it itself: https, except for loopback.
	Issuer string `yaml:"issuer" check:"required"`
	// ClientID and ClientSecret were given out by the provider. A public client has no secret.
	ClientID     string      `yaml:"client_id" check:"required"`
	ClientSecret secret.Text `yaml:"client_secret"`
	// Scopes are asked for in addition to openid. Default: profile and email.
	Scopes []string `yaml:"scopes"`
	// UserClaim names people in the audit trail, with their unchangeable sub. Default
	// preferred_username, or else a verified email.
	UserClaim string `yaml:"user_claim" default:"preferred_username"`
	// Roles give people their role, the highest one that fits. Without one, a person is refused.
	Roles []OIDCRole `yaml:"roles"`
	// TLS is for the provider.
	TLS *TLSClient `yaml:"tls"`
}

// OIDCRole gives a role to whoever has a value in a claim.
type OIDCRole struct {
	// Role is viewer, auditor or operator.
	Role string `yaml:"role" check:"viewer|auditor|operator"`
	// Claim is a text or a list of texts in the ID token or the user's info. The claim email
	// counts if the provider says that it is verified. Default groups.
	Claim string `yaml:"claim" default:"groups"`
	// Value is that of the claim, or of one of its elements.
	Value string `yaml:"value" check:"required"`
}

// ConsoleCertificates let people in by client certificates. Those without one can log in.
type ConsoleCertificates struct {
	// CAFile holds the authorities, as PEM. It is read again when it changes.
	CAFile string `yaml:"ca_file" check:"required"`
	// Roles give people their role, the highest one that fits.
	Roles []CertificateRole `yaml:"roles"`
}

// CertificateRole gives a role to certificates, by exactly one of Subject and SAN.
type CertificateRole struct {
	// Role is viewer, auditor or operator.
	Role string `yaml:"role" check:"viewer|auditor|operator"`
	// Subject is an attribute of the subject: CN=NAME, O=NAME or OU=NAME.
	Subject string `yaml:"subject"`
	// SAN is an e-mail address, a DNS name or a URI among the subject's alternative names.
	SAN string `yaml:"san"`
}

// ServerConfig returns the configuration of the console's TLS server, as that of a [TLSServer]. It
// asks for client certificates where there are authorities for them.
func (c *Console) ServerConfig() (*tls.Config, error) {
	base, err := c.TLS.ServerConfig()
	if err == nil && base != nil && c.Certificates != nil {
		err = askClients(base, c.Certificates.CAFile, tls.VerifyClientCertIfGiven)
	}
	return base, err
}

func (k *checker) console(c *Config) {
	s := c.Console
	if s.Listen == "" {
		if s.TLS != nil || s.URL != "" || s.OIDC != nil || s.Certificates != nil || s.Redact != nil {
			k.warn("console", "has no effect without console.listen")
		}
		return
	}
	loopback := k.listenAddress("console.listen", s.Listen)
	k.failIf(!loopback && s.TLS == nil, "console.listen", s.Listen, "is reachable from outside without TLS; set console.tls, or listen on 127.0.0.1")
	k.differs("console.listen", s.Listen, "ingest.listen, admin.listen and audit.serve.listen", c.Ingest.Listen, c.Admin.Listen, c.Audit.Serve.Listen)
	k.consoleURL(s, loopback)
	if s.OIDC != nil {
		k.oidc(*s.OIDC)
	}
	if s.Certificates != nil {
		k.consoleCertificates(s)
	}
	if s.Redact != nil {
		k.redact("console.redact", s.Redact)
	}
}

func (k *checker) consoleURL(s Console, loopback bool) {
	switch {
	case s.URL != "":
		k.url("console.url", s.URL, address{
			form: "an address such as https://audit.example.com, without a path",
			bare: "the console has the host to itself",
		})
	case s.OIDC != nil:
		k.fail("console.url", nil, "is required with console.oidc, since the provider sends people back to it")
	case !loopback:
		k.fail("console.url", nil, "is required where console.listen is not loopback, since the console answers by this name only")
	}
}

func (k *checker) oidc(o OIDC) {
	k.url("console.oidc.issuer", o.Issuer, address{
		form:  "an address such as https://login.example.com/realms/main, without ? and #",
		login: "; use client_id and client_secret",
		https: ", since it says who people are",
	})
	k.names("console.oidc.scopes", o.Scopes)
	k.failIf(len(o.Roles) == 0, "console.oidc.roles", nil, "is required: without a rule that gives a role, everybody is refused")
}

func (k *checker) consoleCertificates(s Console) {
	const at = "console.certificates"
	switch {
	case s.TLS == nil:
		k.fail(at, nil, "needs console.tls, since a client certificate is shown over TLS")
	case s.TLS.ClientCAFile != "":
		k.fail("console.tls.client_ca_file", s.TLS.ClientCAFile, "must not be set together with "+at+", which has a ca_file of its own")
	}
	k.failIf(len(s.Certificates.Roles) == 0, at+".roles", nil, "is required: without a rule that gives a role, no certificate lets anybody in")
	for i, r := range s.Certificates.Roles {
		path := fmt.Sprintf("%s.roles[%d]", at, i)
		k.failIf((r.Subject == "") == (r.SAN == ""), path, nil, "must have exactly one of subject and san")
		kind, value, _ := strings.Cut(r.Subject, "=")
		if r.Subject != "" && (kind != "CN" && kind != "O" && kind != "OU" || value == "") {
			k.fail(path+".subject", r.Subject, "must be CN=NAME, O=NAME or OU=NAME")
		}
	}
}
