package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Audit is the trail of changes.
type Audit struct {
	// Origin names the trail in its signed checkpoints, as a domain and path of yours (C2SP
	// tlog-checkpoint). It becomes a part of the generated key, and from then on the origin in
	// the key counts. Default auditrelay.local/HOSTNAME.
	Origin string `yaml:"origin"`
	// KeyFile holds the checkpoint signing key (golang.org/x/mod/sumdb/note
	// form). Default DATA_DIR/audit.key, generated at the first start.
	KeyFile string `yaml:"key_file"`
	// KeyEnv is the name of an environment variable with the key, in the same form.
	// Set at most one of KeyFile, KeyEnv and SignCommand.
	KeyEnv string `yaml:"key_env"`
	// SignCommand is a program with its arguments, called without a shell, which signs with a
	// key that is kept elsewhere (PKCS#11, a cloud KMS). It reads the bytes to sign from its
	// standard input, and prints the base64 of the 64-byte Ed25519 signature within 10s.
	SignCommand []string `yaml:"sign_command"`
	// SignEnv are the names of further environment variables for SignCommand. Of the relay's
	// environment it gets PATH, HOME, USER, LANG, LC_ALL, TZ, TMPDIR and these, and nothing
	// else.
	SignEnv []string `yaml:"sign_env"`
	// PublicKey is the key of SignCommand, NAME+HASH+KEY, as `auditrelay trail keygen
	// --public` makes it.
	PublicKey string `yaml:"public_key"`
	// CheckpointFile keeps the newest checkpoint, so that it is noticed when a trail is put
	// back to an earlier state. Keep it apart from the data directory and its backups. Default
	// KEY_FILE.checkpoint, or DATA_DIR/audit.checkpoint without a KeyFile.
	CheckpointFile string `yaml:"checkpoint_file"`
	// Heartbeat is the longest time between two checkpoints, from 10s to 24h. Default 1h.
	Heartbeat *time.Duration `yaml:"heartbeat" default:"1h" check:"10s..24h"`
	// Witnesses cosign the checkpoints, each only if it continues the previous one
	// (https://c2sp.org/tlog-witness). So others can notice when a trail was set back, or is
	// shown in two versions. Default: none.
	Witnesses []Witness `yaml:"witnesses"`
	// Quorum is how many of them have to cosign. If fewer do, an alarm is raised, and nothing
	// stops. Default: all of them.
	Quorum int `yaml:"quorum"`
	// Spans are digests of the event stream in the trail.
	Spans Spans `yaml:"spans"`
	// Serve publishes the trail to verifiers.
	Serve AuditServe `yaml:"serve"`
}

// Spans are digests of the event stream. Each covers a run of events, so that it can be proven
// that one of them was received.
type Spans struct {
	// Interval is the longest time from one span to the next, while events come.
	// Default 10m.
	Interval time.Duration `yaml:"interval" default:"10m" check:"1s..24h"`
	// Events is about how many events end a span earlier. Default 1000000.
	Events int `yaml:"events" default:"1000000" check:"1..100000000"`
	// Disabled makes no spans.
	Disabled bool `yaml:"disabled"`
}

// AuditServe serves the trail under /tlog/, read-only, in the layout of C2SP tlog-tiles, so
// that public tools can verify it. Its entries are confidential, so a token is required.
type AuditServe struct {
	// Listen is admin, HOST:PORT for a separate listener, or off. The admin listener requires
	// its own token. Default admin.
	Listen string `yaml:"listen" default:"admin"`
	// TLS serves HTTPS on the separate listener. Default: HTTP.
	TLS *TLSServer `yaml:"tls"`
	// Token, at least 16 characters, guards the separate listener, as "Authorization: Bearer
	// TOKEN". Beyond loopback it is required, unless tls.client_ca_file or public is set.
	// Default on loopback: the token in DATA_DIR/admin.token.
	Token secret.Text `yaml:"token"`
	// Public shows the trail to everybody who reaches the listener, without a token. Default
	// false.
	Public bool `yaml:"public"`
}

// Witness is a witness of the trail, such as `auditrelay witness` of another team.
type Witness struct {
	// URL is the submission prefix, before /add-checkpoint: https, except for loopback.
	URL string `yaml:"url" check:"required"`
	// Key is the witness's public key, NAME+HASH+KEY.
	Key string `yaml:"key"`
	// TLS is for URL.
	TLS *TLSClient `yaml:"tls"`
}

func (a *Audit) setDefaults(dataDir string) {
	if a.KeyEnv == "" && len(a.SignCommand) == 0 {
		setDefault(&a.KeyFile, filepath.Join(dataDir, "audit.key"))
	}
	if a.KeyFile != "" {
		setDefault(&a.CheckpointFile, a.KeyFile+".checkpoint")
	}
	setDefault(&a.CheckpointFile, filepath.Join(dataDir, "audit.checkpoint"))
}

func (k *checker) audit(a Audit) {
	if strings.ContainsFunc(a.Origin, func(r rune) bool { return r <= ' ' || r > '~' || r == '+' }) {
		k.fail("audit.origin", a.Origin, `must hold no spaces, no "+" and nothing but ASCII`)
	}
	if count(a.KeyFile != "", a.KeyEnv != "", len(a.SignCommand) > 0) != 1 {
		k.fail("audit", nil, "must have one of key_file, key_env and sign_command")
	}
	switch _, err := note.NewVerifier(a.PublicKey); {
	case len(a.SignCommand) > 0 && a.PublicKey == "":
		k.fail("audit.public_key", nil, "is required with sign_command; 'auditrelay trail keygen --public' makes it from a PEM file")
	case len(a.SignCommand) == 0 && a.PublicKey != "":
		k.fail("audit.public_key", a.PublicKey, "is for sign_command, which is not set; set it, or remove this")
	case a.PublicKey != "" && err != nil:
		k.fail("audit.public_key", a.PublicKey, "must be the public half of an Ed25519 key, in the form NAME+HASH+KEY")
	}
	k.failIf(len(a.SignCommand) > 0 && a.SignCommand[0] == "", "audit.sign_command", nil, "must begin with the path of a program")
	k.failIf(len(a.SignEnv) > 0 && len(a.SignCommand) == 0, "audit.sign_env", nil, "is for sign_command, which is not set; set it, or remove this")
	for i, name := range a.SignEnv {
		if name == "" || strings.ContainsAny(name, "= ") {
			k.fail(fmt.Sprintf("audit.sign_env[%d]", i), name, "must be the name of an environment variable, without its value")
		}
	}
}

func (k *checker) witnesses(a Audit) {
	for i, w := range a.Witnesses {
		at := fmt.Sprintf("audit.witnesses[%d]", i)
		k.url(at+".url", w.URL, address{
			form:  "an address such as https://witness.example.com, without ? and #",
			login: ": an address is shown in logs, and witnesses ask for none",
			https: ": a refusal has no signature, so whoever is in between could raise an alarm",
		})
		if k.required(at+".key", w.Key) {
			k.witnessKey(at+".key", w.Key, a.Witnesses[:i])
		}
	}
	switch n := len(a.Witnesses); {
	case n == 0 && a.Quorum != 0:
		k.fail("audit.quorum", a.Quorum, "is of audit.witnesses, and there are none; add them, or remove this")
	case n > 0:
		between(k, "audit.quorum", a.Quorum, 1, n)
	}
}

func (k *checker) witnessKey(path, value string, before []Witness) {
	if _, err := proof.NewCosignatureVerifier(value); err != nil {
		// Not shown: it may be a signing key.
		k.fail(path, nil, "must be the witness's public key, NAME+HASH+KEY, as 'auditrelay witness init' shows it, copied to the last character")
	}
	if slices.ContainsFunc(before, func(w Witness) bool { return proof.SamePublicKey(w.Key, value) }) {
		k.fail(path, nil, "is the key of another witness, too; one witness counts once")
	}
}
