package meaning

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// Two sets of passwords count: those accepted when they are set, and those of existing
// users accepted at log-in. Being known from a breach does not depend on strength.
var passwordShape = texts(
	"validation_policy", "luds_min_password_length", "luds_min_password_complexity",
	breachOnCreation, breachOnLogin, validateOnLogin,
)

const (
	breachOnCreation = "check_breach_on_creation"
	breachOnLogin    = "check_breach_on_authentication"
	validateOnLogin  = "validate_on_authentication"
)

// passwordState is a config on one side.
type passwordState struct {
	members  map[string]any
	strength strength
}

func explainPassword(c *collector, before, after any) {
	a, b := readPassword(before), readPassword(after)
	c.strengthChanged(a, b)
	c.switched(a, b, breachOnCreation, func(on bool) {
		c.breachCheck(newPasswords, on, a.strength.acceptsNone(), b.strength.acceptsNone())
	})
	c.switched(a, b, breachOnLogin, func(on bool) {
		c.breachCheck(logIns, on, a.loginAcceptsNone(), b.loginAcceptsNone())
	})
	c.switched(a, b, validateOnLogin, func(on bool) { c.validation(on, a, b) })
	if b.strength.locksOut() && !a.strength.locksOut() {
		c.lockedOut(b.strength, "new", "", "set one")
	}
	if b.loginLocksOut() && !a.loginLocksOut() {
		c.lockedOut(b.strength, "existing", " at log-in", "log in with one")
	}
}

// lockedOut tells of rules that no password meets, or hardly any.
func (c *collector) lockedOut(rules strength, which, where, what string) {
	subject, nobody, refused := "no password meets", "nobody", ""
	if !rules.acceptsNone() {
		subject, nobody, refused = fmt.Sprintf("hardly any password has %d characters and meets", rules.length), "hardly anybody", fmt.Sprintf(" of %d characters", longest)
	}
	c.add("password.lockout", func() Statement {
		return Statement{
			Sentence: fmt.Sprintf("lockout: %s the rules%s now, so %s can %s", subject, where, nobody, what),
			Witness:  fmt.Sprintf("no %s password%s is accepted%s now", which, refused, where),
		}
	})
}

func readPassword(v any) passwordState {
	members, _ := v.(map[string]any)
	return passwordState{members, readStrength(members)}
}

// switched calls changed if a switch went from one of true and false to the other.
func (c *collector) switched(a, b passwordState, name string, changed func(on bool)) {
	old, now := a.members[name], b.members[name]
	was, okA := old.(bool)
	is, okB := now.(bool)
	switch {
	case okA && okB && was != is:
		changed(is)
	case okA && okB:
	case !reflect.DeepEqual(old, now):
		c.add("password.switch_unknown", func() Statement {
			return Statement{Sentence: fmt.Sprintf("%s: %s → %s", name, quoteValue(old), quoteValue(now)), Path: "/" + name, Old: raw(old), New: raw(now)}
		})
	}
}

// onOff is a statement about a switch.
func onOff(name, sentence string, on bool, witness string) func() Statement {
	return func() Statement {
		return Statement{Sentence: sentence, Path: "/" + name, Witness: witness, Old: jsondiff.Encode(!on), New: jsondiff.Encode(on)}
	}
}

// breachCheck are the sentences about a check against breaches.
type breachCheck struct{ member, noEffect, on, off, refused, accepted string }

var (
	newPasswords = breachCheck{
		member:   breachOnCreation,
		noEffect: "new passwords: breach check switched, and no password is accepted",
		on:       "new passwords are checked against breaches",
		off:      "new passwords are no longer checked against breaches",
		refused:  "a new password known from a breach is refused now",
		accepted: "a new password known from a breach is accepted now",
	}
	logIns = breachCheck{
		member:   breachOnLogin,
		noEffect: "log-in: breach check switched, and no password is accepted",
		on:       "passwords are checked against breaches at log-in",
		off:      "passwords are no longer checked against breaches at log-in",
		refused:  "an existing password known from a breach is refused at log-in now",
		accepted: "an existing password known from a breach is accepted at log-in now",
	}
)

// breachCheck tells of a switched check. It has no effect where no password is accepted
// on the side without it.
func (c *collector) breachCheck(check breachCheck, on, noneBefore, noneAfter bool) {
	switch {
	case on && noneBefore, !on && noneAfter:
		c.add("password.no_effect", onOff(check.member, check.noEffect, on, ""))
	case on:
		c.add("password.breach_check_on", onOff(check.member, check.on, on, check.refused))
	default:
		c.add("password.breach_check_off", onOff(check.member, check.off, on, check.accepted))
	}
}

// loginAcceptsNone reports whether the check of strength refuses every log-in.
func (p passwordState) loginAcceptsNone() bool {
	return p.members[validateOnLogin] == true && p.strength.acceptsNone()
}

// loginLocksOut reports whether nobody's password passes the check of strength at log-in.
func (p passwordState) loginLocksOut() bool {
	return p.members[validateOnLogin] == true && p.strength.locksOut()
}

func (c *collector) validation(on bool, a, b passwordState) {
	held := a.strength
	if on {
		held = b.strength
	}
	switch {
	case held.acceptsAll():
		c.add("password.no_effect", onOff(validateOnLogin, "log-in: check of strength switched, and every password is accepted", on, ""))
	case on:
		c.add("password.validation_on", onOff(validateOnLogin, "existing passwords are held against the check of strength at log-in", on,
			"an existing password that is too weak is refused at log-in now"))
	default:
		c.add("password.validation_off", onOff(validateOnLogin, "existing passwords are no longer held against the check of strength at log-in", on,
			"an existing password that is too weak is accepted at log-in now"))
	}
}

// strengthChanged makes one statement of the three members, as they work together.
func (c *collector) strengthChanged(a, b passwordState) {
	s, t := a.strength, b.strength
	said := strengthSentence(a, b)
	if said.Sentence == "" {
		return
	}
	if s.check == unknownCheck || t.check == unknownCheck {
		c.add("password.strength_unknown", func() Statement { return said })
		return
	}
	gained, more := t.beyond(s)
	lost, fewer := s.beyond(t)
	var witnesses []string
	if more {
		witnesses = append(witnesses, gained.String()+" is accepted now")
	}
	if fewer {
		witnesses = append(witnesses, lost.String()+" is refused now")
	}
	said.Witness = strings.Join(witnesses, "; ")
	rule := map[[2]bool]string{
		{true, true}: "password.strength_traded", {true, false}: "password.strength_weaker",
		{false, true}: "password.strength_stronger", {false, false}: "password.no_effect",
	}[[2]bool{more, fewer}]
	switch {
	case more && fewer && gained.random:
		rule = "password.strength_mixed"
	case !more && !fewer && t.check == zxcvbn:
		said.Sentence += ", which ZXCVBN does not use"
	case !more && !fewer:
		said.Sentence += ", and the same passwords are accepted"
	}
	c.add(rule, func() Statement { return said })
}

// strengthSentence names the changed members. Its path is the first one's.
func strengthSentence(a, b passwordState) Statement {
	var said Statement
	var parts []string
	for _, member := range []struct{ name, label string }{
		{"validation_policy", "password check"},
		{"luds_min_password_length", "minimum password length"},
		{"luds_min_password_complexity", "minimum password complexity"},
	} {
		old, now := a.members[member.name], b.members[member.name]
		if reflect.DeepEqual(old, now) {
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s → %s", member.label, describe(old), describe(now)))
		if said.Path == "" {
			said.Path, said.Old, said.New = "/"+member.name, raw(old), raw(now)
		}
	}
	said.Sentence = strings.Join(parts, ", ")
	return said
}

// describe shows a value shortly: a number or known word as it is, nothing as "none".
func describe(v any) string {
	switch v {
	case nil:
		return "none"
	case "LUDS":
		return "LUDS"
	case "ZXCVBN":
		return "ZXCVBN"
	}
	return visible(string(jsondiff.Encode(v)), maxText)
}
