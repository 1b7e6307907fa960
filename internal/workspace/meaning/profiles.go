package meaning

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

var profilesShape = listBy("profile_id", object(map[string]*shape{
	"profile_id": text, "name": text, "audience": text, "issuer": text, "jwks_url": text,
	"can_jit_provision": anything, "attribute_mapping": anything, "public_key_type": anything,
	"pem_files": listBy("pem_file_id", object(map[string]*shape{"pem_file_id": text, "public_key": text})),
}))

// profile compares one profile.
type profile struct {
	*collector
	name, path    string
	before, after map[string]any
}

func explainProfiles(c *collector, before, after any) {
	a, b := byKey(before, "profile_id"), byKey(after, "profile_id")
	for _, id := range sortedUnion(a, b) {
		p := profile{c, "profile " + quote(id), "/profile_id=" + cutPath(jsontext.Escape(id)), a[id], b[id]}
		switch {
		case p.before == nil:
			p.whole("added", p.after, "tokens.profile_added", "accepted now")
		case p.after == nil:
			p.whole("removed", p.before, "tokens.profile_removed", "refused now")
		default:
			p.compare()
		}
	}
	if anyLive(a) && !anyLive(b) {
		c.add("tokens.lockout", Statement{
			Sentence: "lockout: no profile accepts any token any more", Witness: "tokens that were accepted before are refused now, whoever issued them",
		})
	}
}

// live reports whether a profile accepts any token: without a key it does not.
func live(o map[string]any) bool { return len(keysOf(o)) > 0 || keysAddress(o) != "" }

func anyLive(profiles map[string]map[string]any) bool {
	for _, o := range profiles {
		if live(o) {
			return true
		}
	}
	return false
}

func keysAddress(o map[string]any) string { return strings.TrimSpace(textOf(o, "jwks_url")) }

// whole tells of a profile on one side only. It accepts nothing without a key.
func (p profile) whole(happened string, o map[string]any, rule, effect string) {
	witness := "tokens of issuer " + quote(textOf(o, "issuer")) + " are " + effect
	if !live(o) {
		rule, witness = "tokens.profile_idle", ""
	}
	p.add(rule, Statement{
		Sentence: fmt.Sprintf("%s %s: issuer %s, audience %s, %s", p.name, happened, quote(textOf(o, "issuer")),
			quote(textOf(o, "audience")), plural(len(keysOf(o)), "key", "keys")),
		Path: p.path, Witness: witness,
	})
}

func (p profile) compare() {
	p.keys()
	p.keysURL()
	p.condition("issuer", "tokens.issuer_changed")
	p.condition("audience", "tokens.audience_changed")
	p.provisioning()
	for _, member := range []struct{ name, label, rule string }{
		{"attribute_mapping", "attribute mapping", "tokens.mapping_changed"},
		{"public_key_type", "type of keys", "tokens.mapping_changed"},
		{"name", "name", "tokens.renamed"},
	} {
		p.field(p.inForce(member.rule), p.name+": "+member.label, p.path+"/"+member.name, mapping(p.before[member.name]), mapping(p.after[member.name]))
	}
}

// inForce is the rule for a changed condition. It is no change of acceptance where the
// profile accepts nothing on one side: then its keys tell what happened.
func (p profile) inForce(rule string) string {
	if live(p.before) && live(p.after) || rule == "tokens.renamed" {
		return rule
	}
	return "tokens.profile_idle"
}

// mapping is an attribute mapping as an object, where it is a string with the JSON of one:
// the API has it in both forms.
func mapping(v any) any {
	text, ok := v.(string)
	if !ok || !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return v
	}
	if object, err := jsontext.Decode([]byte(text)); err == nil {
		return object
	}
	return v
}

// keysOf gives the fingerprints of a profile's keys, by id.
func keysOf(o map[string]any) map[string]string {
	keys := map[string]string{}
	for id, file := range byKey(o["pem_files"], "pem_file_id") {
		if key := textOf(file, "public_key"); strings.TrimSpace(key) != "" {
			keys[id] = fingerprint(key)
		}
	}
	return keys
}

// fingerprint is a key's SHA-256 in hex. Of a text with one PEM block, and nothing else,
// it is the hash of the content: spaces make no difference.
func fingerprint(key string) string {
	data := []byte(strings.TrimSpace(key))
	if len(data) < maxBytes {
		block, rest := pem.Decode(data)
		if block != nil && len(bytes.TrimSpace(rest)) == 0 && len(block.Headers) == 0 && bytes.HasPrefix(data, []byte("-----BEGIN "+block.Type+"-----")) {
			data = block.Bytes
		}
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// hashStart is a fingerprint for people.
func hashStart(fingerprint string) string { return fingerprint[:min(len(fingerprint), 16)] + "…" }

func (p profile) keys() {
	a, b := keysOf(p.before), keysOf(p.after)
	was, is := setOf(maps.Values(a)), setOf(maps.Values(b))
	for _, id := range sortedUnion(a, b) {
		old, now := a[id], b[id]
		if old == now {
			continue
		}
		gained, lost := now != "" && !was[now], old != "" && !is[old]
		rule := map[[2]bool]string{
			{true, true}: "tokens.key_replaced", {true, false}: "tokens.key_added",
			{false, true}: "tokens.key_removed", {false, false}: "tokens.key_moved",
		}[[2]bool{gained, lost}]
		p.add(rule, Statement{
			Sentence: fmt.Sprintf("%s: public key %s %s", p.name, quote(id), keyChange(old, now)),
			Path:     p.path + "/pem_files/pem_file_id=" + jsontext.Escape(id),
			Witness:  keyWitness(gained, lost, old, now),
		})
	}
}

func keyChange(old, now string) string {
	switch {
	case old == "":
		return "added (SHA-256 " + hashStart(now) + ")"
	case now == "":
		return "removed (SHA-256 " + hashStart(old) + ")"
	}
	return "replaced (SHA-256 " + hashStart(old) + " → " + hashStart(now) + ")"
}

func keyWitness(gained, lost bool, old, now string) string {
	var parts []string
	if gained {
		parts = append(parts, "tokens signed by the key "+hashStart(now)+" are accepted now")
	}
	if lost {
		parts = append(parts, "tokens signed by the key "+hashStart(old)+" are refused now")
	}
	return strings.Join(parts, "; ")
}

func (p profile) keysURL() {
	old, now := keysAddress(p.before), keysAddress(p.after)
	if old == now {
		return
	}
	rule := "tokens.keys_url_changed"
	var witnesses []string
	if now != "" {
		witnesses = append(witnesses, "tokens signed by a key at "+quote(now)+" are accepted now")
	} else {
		rule = "tokens.keys_url_removed"
	}
	if old != "" {
		witnesses = append(witnesses, "those by a key at "+quote(old)+" are refused now")
	} else {
		rule = "tokens.keys_url_added"
	}
	p.differs("jwks_url", "address of the keys", rule, strings.Join(witnesses, "; "))
}

// condition compares a requirement on tokens.
func (p profile) condition(name, rule string) {
	old, now := textOf(p.before, name), textOf(p.after, name)
	if rule = p.inForce(rule); rule == "tokens.profile_idle" {
		p.differs(name, name, rule, "")
		return
	}
	if old == "" || now == "" {
		p.differs(name, name, "tokens.condition_unknown", "")
		return
	}
	p.differs(name, name, rule, fmt.Sprintf("tokens with %s %s are accepted now; those with %s are refused now", name, quote(now), quote(old)))
}

// differs tells of a changed text, with a witness. Nothing and an empty text are the
// same.
func (p profile) differs(name, label, rule, witness string) {
	old, now := textOf(p.before, name), textOf(p.after, name)
	if old == now {
		return
	}
	p.add(rule, Statement{
		Sentence: fmt.Sprintf("%s: %s %s → %s", p.name, label, quote(old), quote(now)), Path: p.path + "/" + name,
		Witness: witness, Old: raw(p.before[name]), New: raw(p.after[name]),
	})
}

// provisioning compares whether tokens can create users.
func (p profile) provisioning() {
	const name = "can_jit_provision"
	old, now, path := p.before[name], p.after[name], p.path+"/"+name
	was, okA := old.(bool)
	is, okB := now.(bool)
	switch {
	case !live(p.after):
		p.field("tokens.profile_idle", p.name+": just-in-time provisioning", path, old, now)
	case !okA || !okB:
		p.field("setting.changed", p.name+": just-in-time provisioning", path, old, now)
	case is && !was:
		p.add("tokens.provisioning_on", Statement{
			Sentence: p.name + ": tokens can create users", Path: path, Witness: "a token of an unknown user creates that user now", Old: raw(old), New: raw(now),
		})
	case was && !is:
		p.add("tokens.provisioning_off", Statement{
			Sentence: p.name + ": tokens can no longer create users", Path: path, Witness: "a token of an unknown user is refused now", Old: raw(old), New: raw(now),
		})
	}
}

var profileRules = []Rule{
	{"tokens.profile_added", Weaker, Critical, "Tokens of another issuer are accepted.", "Who holds the issuer's key can log in as any user."},
	{"tokens.lockout", Stronger, High, "No profile accepts any token any more: the last profile or the last key is gone.", "All who log in with trusted tokens are locked out, perhaps by an attacker."},
	{"tokens.profile_removed", Stronger, Low, "Tokens of an issuer are no longer accepted.", "Less is permitted: its users may be locked out, while those of other issuers still log in."},
	{"tokens.profile_idle", Neutral, Low, "A profile without any key was added, removed or changed.", "It accepts nothing until it has a key."},
	{"tokens.key_added", Weaker, Critical, "Tokens signed by another key are accepted.", "Who holds the key can log in as any user."},
	{"tokens.key_removed", Stronger, Low, "Tokens signed by a key are no longer accepted.", "Less is permitted."},
	{"tokens.key_replaced", Mixed, Critical, "Tokens signed by another key are accepted, in place of the old one.", "A planned rotation looks the same as a takeover."},
	{"tokens.key_moved", Neutral, Info, "A key has another id.", "The same tokens are accepted."},
	{"tokens.keys_url_added", Weaker, Critical, "Keys are taken from an address.", "Who controls the address can log in as any user."},
	{"tokens.keys_url_removed", Stronger, Low, "Keys are no longer taken from an address.", "Less is permitted."},
	{"tokens.keys_url_changed", Mixed, Critical, "Keys are taken from another address.", "Who controls the address can log in as any user."},
	{"tokens.issuer_changed", Mixed, Critical, "Tokens of another issuer are accepted, in place of the old one.", "The issuer vouches for every user."},
	{"tokens.audience_changed", Mixed, High, "Tokens for another audience are accepted, in place of the old one.", "Tokens made for another application may log in here."},
	{"tokens.condition_unknown", Unknown, High, "An issuer or audience was set where there was none, or emptied.", "An empty one may mean that all are accepted."},
	{"tokens.provisioning_on", Weaker, High, "Tokens can create users.", "An issuer can bring in new users unasked."},
	{"tokens.provisioning_off", Stronger, Low, "Tokens can no longer create users.", "Less is permitted."},
	{"tokens.mapping_changed", Unknown, High, "The mapping of attributes, or the type of keys, changed.", "A mapping can make a token someone else's; no rule reads it."},
	{"tokens.renamed", Neutral, Info, "A profile has another name.", "The same tokens are accepted."},
}
