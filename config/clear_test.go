package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatGoesInTheClear wants a warning where secrets go over the network in the clear, and an
// error where that is never needed.
func TestWhatGoesInTheClear(t *testing.T) {
	t.Parallel()
	sink := func(nats string) string { return "sinks: [{name: n, nats: {" + nats + "}}]" }
	for text, want := range map[string]string{
		`admin: {listen: "127.0.0.1:9100", pprof: true}`:                                            "",
		`admin: {listen: ":9100"}`:                                                                  "admin.listen: everybody who reaches this address can read the metrics; set admin.token and admin.tls",
		`admin: {listen: ":9100", token: "${LONG}"}`:                                                "admin.listen: admin.token goes over the network in the clear; set admin.tls",
		`admin: {listen: ":9100", token: "${LONG}", tls: {cert_file: a, key_file: b}, pprof: true}`: "",
		`audit: {serve: {listen: "off"}}`:                                                           "",
		`audit: {serve: {listen: "127.0.0.1:9101"}}`:                                                "",
		`audit: {serve: {listen: ":9101", token: "${LONG}"}}`:                                       "audit.serve.listen: the trail's entries and audit.serve.token go over the network in the clear",
		`audit: {serve: {listen: ":9101", tls: {cert_file: a, key_file: b, client_ca_file: c}}}`:    "",
		`audit: {serve: {listen: ":9101", token: "${LONG}", tls: {cert_file: a, key_file: b}}}`:     "",
		`journal: {url: "nats://a:4222", credentials_file: x}`:                                      "journal.url: all events go over the network in the clear",
		`journal: {url: "tls://a:4222,nats://b:4222"}`:                                              "journal.url: all events go over the network in the clear",
		`journal: {url: "tls://a:4222"}`:                                                            "",
		`journal: {url: "nats://127.0.0.1:4222"}`:                                                   "",
		`journal: {url: "nats://a:4222", tls: {}}`:                                                  "",
		sink(`url: "nats://a:4222", username: u, password: "${KEY}"`):                               "sinks[0].nats.url: the password or token goes over the network in the clear; write tls://",
		sink(`url: "ws://a:4222", token: "${KEY}"`):                                                 "sinks[0].nats.url: the password or token goes over the network in the clear; write tls://",
		sink(`url: "nats://localhost:4222", token: "${KEY}"`):                                       "",
		sink(`url: "nats://a:4222", token: "${KEY}", tls: {}`):                                      "",
		sink(`url: "tls://a:4222", token: "${KEY}"`):                                                "",
		sink(`url: "nats://a:4222", nkey_file: a`):                                                  "",
	} {
		_, warnings, err := Parse("x", []byte(minimal+text), environment(map[string]string{"KEY": "hunter2-of-some-length", "LONG": "horse-battery-staple"}))
		require.NoError(t, err, text)
		if want == "" {
			assert.Empty(t, warnings, text)
			continue
		}
		require.Len(t, warnings, 1, text)
		assert.Contains(t, warnings[0].String(), want)
	}
	for text, want := range map[string]string{
		`ingest: {anonymous: a/live, behind_proxy: true}`:               "would let everybody push whom the proxy lets through; remove it, or behind_proxy",
		`admin: {listen: ":9100", pprof: true}`:                         `admin.pprof: "true": must not be served beyond loopback to everybody; set admin.token`,
		`admin: {token: "${SHORT}"}`:                                    "admin.token: must have at least 16 characters",
		`audit: {serve: {listen: ":9101"}}`:                             `audit.serve.listen: ":9101": must not show the trail to everybody; set audit.serve.token`,
		`audit: {serve: {listen: "nowhere"}}`:                           "audit.serve.listen: \"nowhere\": must be IP:PORT",
		`audit: {serve: {listen: "127.0.0.1:9100"}}`:                    "must differ from ingest.listen and admin.listen",
		`audit: {serve: {tls: {cert_file: a, key_file: b}}}`:            "must be an address where tls or token is set",
		`audit: {serve: {listen: "127.0.0.1:9101", token: "${SHORT}"}}`: "audit.serve.token: must have at least 16 characters",
	} {
		_, _, err := parse(t, minimal+text)
		require.ErrorContains(t, err, want)
	}
}
