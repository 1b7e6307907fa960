package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The longest event that fits into a record of the journal, whatever its labels are and however
// badly it compresses. The payload of an external cluster is 1 MiB unless it was raised; on a
// disk, a record may have 8 MiB.
const (
	maxLineExternal Size = 900 << 10
	maxLineDisk     Size = 7 << 20
)

func (k *checker) config(c *Config) {
	k.tagged(c, "")
	k.wholePath("data_dir", c.DataDir)
	k.workspace(c.Workspace)
	k.environments(c)
	k.ingest(c)
	k.limits(c.Ingest.Limits, c.Journal)
	k.journal(c.Journal, c.Ingest.Limits)
	k.rotation(c.Streaming)
	k.policies(c)
	k.audit(c.Audit)
	k.witnesses(c.Audit)
	k.auditServe(c)
	k.admin(c)
	k.console(c)
	k.webhookURL("heartbeat.url", c.Heartbeat.URL.Reveal())
	k.traces(c.Traces)
	k.sinks(c)
	k.watching(c)
}

// minRotateEvery is the least age at which a credential is replaced by schedule.
const minRotateEvery = time.Hour

func (k *checker) rotation(s Streaming) {
	overlap := time.Duration(0)
	if s.RotationOverlap != nil {
		overlap = *s.RotationOverlap
	}
	k.failIf(overlap < 0, "streaming.rotation_overlap", overlap, "must be positive, or 0 to refuse a replaced credential at once")
	switch every := s.RotateEvery; {
	case every == 0:
	case every < minRotateEvery:
		k.fail("streaming.rotate_every", every, "must be at least 1h, or 0 for never: each rotation is a change of the workspace")
	case every <= overlap:
		k.fail("streaming.rotate_every", every, fmt.Sprintf("must be longer than streaming.rotation_overlap (%v)", overlap))
	}
}

func (k *checker) workspace(w *Workspace) {
	if w == nil {
		return
	}
	k.baseURL("workspace.base_url", w.BaseURL, "https://management.example.com", "key_id and secret")
	k.failIf(strings.Contains(w.KeyID, ":"), "workspace.key_id", nil, `must hold no ":", which ends a user name of Basic authentication`)
}

// baseURL checks an address that keys are sent to.
func (k *checker) baseURL(path, value, example, keys string) {
	k.url(path, value, address{
		form:  "an address such as " + example + ", without ? and #",
		login: "; use " + keys,
		https: ", since the key is sent with each call",
	})
}

func (k *checker) secret(path string, value secret.Text) {
	k.failIf(value.Empty(), path, nil, "is required; write ${NAME} for an environment variable, or file:PATH")
}

func (k *checker) ingest(c *Config) {
	in := c.Ingest
	loopback := k.listenAddress("ingest.listen", in.Listen)
	if !loopback && in.TLS == nil && !in.BehindProxy {
		k.fail("ingest.listen", in.Listen,
			"is reachable from outside without TLS; set ingest.tls, or behind_proxy: true where TLS ends at a proxy, or listen on 127.0.0.1")
	}
	k.connections(in)
	if in.Anonymous == "" {
		return
	}
	switch {
	case !loopback:
		k.fail("ingest.anonymous", in.Anonymous, "is for loopback listeners only; remove it, or listen on 127.0.0.1")
	case in.BehindProxy:
		k.fail("ingest.anonymous", in.Anonymous, "would let everybody push whom the proxy lets through; remove it, or behind_proxy")
	}
	for _, e := range c.Environments {
		if in.Anonymous == e.Project+"/"+e.Environment {
			return
		}
	}
	k.fail("ingest.anonymous", in.Anonymous, "must be PROJECT/ENVIRONMENT of one of the environments")
}

func (k *checker) connections(in Ingest) {
	const at = "ingest.connections."
	c := in.Connections
	if c.Total != 0 {
		between(k, at+"total", c.Total, 16, 1_000_000)
	}
	switch {
	case c.PerAddress == 0:
	case in.BehindProxy:
		k.fail(at+"per_address", c.PerAddress, "has no use with behind_proxy, where all connections come from the proxy's address; remove it, and bound them at the proxy")
	case c.Total > 0:
		between(k, at+"per_address", c.PerAddress, 1, c.Total)
	default:
		between(k, at+"per_address", c.PerAddress, 1, 1_000_000)
	}
}

func (k *checker) limits(l IngestLimits, j Journal) {
	const at = "ingest.limits."
	longest, why := maxLineDisk, "what the journal keeps in one record"
	if j.URL != "" {
		longest, why = maxLineExternal, "what fits the 1 MiB payload of an external cluster"
	}
	switch {
	case l.LineBytes < 1<<10:
		k.fail(at+"line_bytes", l.LineBytes, "must be at least 1KiB")
	case l.LineBytes > longest:
		k.fail(at+"line_bytes", l.LineBytes, fmt.Sprintf("must be at most %v, %s", longest, why))
	case l.LineBytes > l.DecompressedBytes:
		k.fail(at+"line_bytes", l.LineBytes, fmt.Sprintf("must be at most decompressed_bytes, %v", l.DecompressedBytes))
	}
	if l.BodyBytes > l.DecompressedBytes {
		k.fail(at+"body_bytes", l.BodyBytes, fmt.Sprintf("must be at most decompressed_bytes, %v", l.DecompressedBytes))
	}
	if l.InFlightBytes < l.DecompressedBytes {
		k.fail(at+"in_flight_bytes", l.InFlightBytes,
			fmt.Sprintf("must be at least decompressed_bytes, %v, or the largest push would never be let in", l.DecompressedBytes))
	}
}

func (k *checker) journal(j Journal, l IngestLimits) {
	if j.URL != "" {
		k.natsURLs("journal.url", j.URL)
		between(k, "journal.replicas", j.Replicas, 1, 5)
		if j.TLS == nil && inTheClear(j.URL) {
			k.warn("journal.url", "all events go over the network in the clear, and who is in between can change them; write tls:// or set journal.tls")
		}
	} else {
		k.failIf(j.Replicas != 1, "journal.replicas", j.Replicas, "must be 1 without journal.url, since the journal is then on one disk")
		k.failIf(j.Shards > 1, "journal.shards", j.Shards, "must be 1 without journal.url: on one disk more logs would only share its syncs")
		k.failIf(j.CredentialsFile != "", "journal.credentials_file", j.CredentialsFile, "is for journal.url, which is not set; set it, or remove this")
		k.failIf(j.TLS != nil, "journal.tls", nil, "is for journal.url, which is not set; set it, or remove this")
	}
	k.name("journal.stream_prefix", j.StreamPrefix)
	k.failIf(j.DeadLetterBytes < 1<<20, "journal.dead_letter_bytes", j.DeadLetterBytes, "must be at least 1MiB")
	if j.MaxBytes < max(1<<20, l.BodyBytes) {
		k.fail("journal.max_bytes", j.MaxBytes,
			fmt.Sprintf("must be at least 1MiB and ingest.limits.body_bytes, %v, or the largest push would never fit", l.BodyBytes))
	}
	if w := j.DuplicateWindow; w > 0 && w < time.Second || w > 24*time.Hour {
		k.fail("journal.duplicate_window", w, "must be between 1s and 24h, or negative to store whatever is pushed")
	}
}

func (k *checker) admin(c *Config) {
	loopback := k.listenAddress("admin.listen", c.Admin.Listen)
	k.adminAccess(c.Admin, loopback)
	k.differs("admin.listen", c.Admin.Listen, "ingest.listen: the one is private, the other is pushed to", c.Ingest.Listen)
}

// The values of [AuditServe].Listen other than an address.
const (
	ServeOnAdmin = "admin"
	ServeOff     = "off"
)

func (k *checker) auditServe(c *Config) {
	s := c.Audit.Serve
	if s.Listen == ServeOnAdmin || s.Listen == ServeOff {
		if s.TLS != nil || !s.Token.Empty() {
			k.fail("audit.serve.listen", s.Listen, "must be an address where tls or token is set; the admin listener has its own")
		}
		return
	}
	loopback := k.listenAddress("audit.serve.listen", s.Listen)
	k.differs("audit.serve.listen", s.Listen, "ingest.listen and admin.listen", c.Ingest.Listen, c.Admin.Listen)
	k.longEnough("audit.serve.token", s.Token)
	switch certified := s.TLS != nil && s.TLS.ClientCAFile != ""; {
	case s.Public && !s.Token.Empty():
		k.fail("audit.serve.public", s.Public, "must not be set together with audit.serve.token; keep one")
	case loopback || certified || s.Public:
	case s.Token.Empty():
		k.fail("audit.serve.listen", s.Listen, "must not show the trail to everybody; set audit.serve.token or audit.serve.tls.client_ca_file, or listen on 127.0.0.1")
	case s.TLS == nil:
		k.warn("audit.serve.listen", "the trail's entries and audit.serve.token go over the network in the clear; set audit.serve.tls, or listen on 127.0.0.1")
	}
}

func (k *checker) adminAccess(a Admin, loopback bool) {
	k.longEnough("admin.token", a.Token)
	switch {
	case loopback:
	case a.Token.Empty() && a.Pprof:
		k.fail("admin.pprof", a.Pprof, "must not be served beyond loopback to everybody; set admin.token, or listen on 127.0.0.1")
	case a.Token.Empty():
		k.warn("admin.listen", "everybody who reaches this address can read the metrics; set admin.token and admin.tls, or listen on 127.0.0.1")
	case a.TLS == nil:
		k.warn("admin.listen", "admin.token goes over the network in the clear; set admin.tls, or listen on 127.0.0.1")
	}
}

func (k *checker) tlsClient(path string, t TLSClient) {
	k.failIf((t.CertFile == "") != (t.KeyFile == ""), path, nil, "must have both cert_file and key_file, or neither")
}
