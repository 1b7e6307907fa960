package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

func (a *Audit) setDefaults(dataDir string) {
	if a.KeyEnv == "" && len(a.SignCommand) == 0 {
		setDefault(&a.KeyFile, filepath.Join(dataDir, "audit.key"))
	}
	if a.KeyFile != "" {
		setDefault(&a.CheckpointFile, a.KeyFile+".checkpoint")
	}
	setDefault(&a.CheckpointFile, filepath.Join(dataDir, "audit.checkpoint"))
	if a.Heartbeat == nil {
		a.Heartbeat = new(time.Hour)
	}
}

// minHeartbeat is the shortest audit.heartbeat. A tree that does not grow is examined every 5
// s, and a checkpoint that comes more than two heartbeats after the previous one raises an
// alarm.
const minHeartbeat = 10 * time.Second

func (k *checker) audit(a Audit) {
	if strings.ContainsFunc(a.Origin, func(r rune) bool { return r <= ' ' || r > '~' || r == '+' }) {
		k.fail("audit.origin", a.Origin, `must hold no spaces, no "+" and nothing but ASCII`)
	}
	keys := 0
	for _, given := range []bool{a.KeyFile != "", a.KeyEnv != "", len(a.SignCommand) > 0} {
		if given {
			keys++
		}
	}
	if keys != 1 {
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
	if len(a.SignCommand) > 0 && a.SignCommand[0] == "" {
		k.fail("audit.sign_command", nil, "must begin with the path of a program")
	}
	if len(a.SignEnv) > 0 && len(a.SignCommand) == 0 {
		k.fail("audit.sign_env", nil, "is for sign_command, which is not set; set it, or remove this")
	}
	for i, name := range a.SignEnv {
		if name == "" || strings.ContainsAny(name, "= ") {
			k.fail(fmt.Sprintf("audit.sign_env[%d]", i), name, "must be the name of an environment variable, without its value")
		}
	}
	if a.Heartbeat != nil {
		between(k, "audit.heartbeat", *a.Heartbeat, minHeartbeat, 24*time.Hour)
	}
}
