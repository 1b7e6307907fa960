package config

import (
	"fmt"
	"slices"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

func (k *checker) witnesses(a Audit) {
	for i, w := range a.Witnesses {
		at := fmt.Sprintf("audit.witnesses[%d]", i)
		k.witnessURL(at+".url", w.URL)
		k.witnessKey(at+".key", w.Key, a.Witnesses[:i])
		k.tlsClient(at+".tls", w.TLS)
	}
	switch n := len(a.Witnesses); {
	case n == 0 && a.Quorum != 0:
		k.fail("audit.quorum", a.Quorum, "is of audit.witnesses, and there are none; add them, or remove this")
	case n > 0:
		between(k, "audit.quorum", a.Quorum, 1, n)
	}
}

func (k *checker) witnessURL(path, value string) {
	if k.required(path, value) {
		k.url(path, value, address{
			form:  "an address such as https://witness.example.com, without ? and #",
			login: ": an address is shown in logs, and witnesses ask for none",
			https: ": a refusal has no signature, so whoever is in between could raise an alarm",
		})
	}
}

func (k *checker) witnessKey(path, value string, before []Witness) {
	if !k.required(path, value) {
		return
	}
	if _, err := proof.NewCosignatureVerifier(value); err != nil {
		// Not shown: it may be a signing key.
		k.fail(path, nil, "must be the witness's public key, NAME+HASH+KEY, as 'auditrelay witness init' shows it, copied to the last character")
	}
	if slices.ContainsFunc(before, func(w Witness) bool { return proof.SamePublicKey(w.Key, value) }) {
		k.fail(path, nil, "is the key of another witness, too; one witness counts once")
	}
}
