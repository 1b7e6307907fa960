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
	for _, s := range passwordSwitches {
		c.switched(s, a, b)
	}
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
	c.add("password.lockout", Statement{
		Sentence: fmt.Sprintf("lockout: %s the rules%s now, so %s can %s", subject, where, nobody, what),
		Witness:  fmt.Sprintf("no %s password%s is accepted%s now", which, refused, where),
	})
}

func readPassword(v any) passwordState {
	members, _ := v.(map[string]any)
	return passwordState{members, readStrength(members)}
}

// passwordSwitch is a check of passwords that is on or off.
type passwordSwitch struct {
	member, rule string // the rule's id, up to "_on" or "_off"
	// idle reports whether it makes no difference between the side with it and the one without;
	// noEffect says so.
	idle              func(with, without passwordState) bool
	noEffect, on, off string
	refused, accepted string // a password that is refused with it
}

var passwordSwitches = []passwordSwitch{
	{
		member: breachOnCreation, rule: "password.breach_check",
		idle:     func(_, without passwordState) bool { return without.strength.acceptsNone() },
		noEffect: "new passwords: breach check switched, and no password is accepted",
		on:       "new passwords are checked against breaches",
		off:      "new passwords are no longer checked against breaches",
		refused:  "a new password known from a breach is refused now",
		accepted: "a new password known from a breach is accepted now",
	},
	{
		member: breachOnLogin, rule: "password.breach_check",
		idle:     func(_, without passwordState) bool { return without.loginAcceptsNone() },
		noEffect: "log-in: breach check switched, and no password is accepted",
		on:       "passwords are checked against breaches at log-in",
		off:      "passwords are no longer checked against breaches at log-in",
		refused:  "an existing password known from a breach is refused at log-in now",
		accepted: "an existing password known from a breach is accepted at log-in now",
	},
	{
		member: validateOnLogin, rule: "password.validation",
		idle:     func(with, _ passwordState) bool { return with.strength.acceptsAll() },
		noEffect: "log-in: check of strength switched, and every password is accepted",
		on:       "existing passwords are held against the check of strength at log-in",
		off:      "existing passwords are no longer held against the check of strength at log-in",
		refused:  "an existing password that is too weak is refused at log-in now",
		accepted: "an existing password that is too weak is accepted at log-in now",
	},
}

// switched tells of a switch that went from one of true and false to the other, or has become
// something else.
func (c *collector) switched(s passwordSwitch, a, b passwordState) {
	old, now := a.members[s.member], b.members[s.member]
	was, okA := old.(bool)
	is, okB := now.(bool)
	if !okA || !okB {
		c.field("password.switch_unknown", s.member, "/"+s.member, old, now)
		return
	}
	if was == is {
		return
	}
	rule, said := s.rule+"_off", Statement{Sentence: s.off, Witness: s.accepted}
	with, without := a, b
	if is {
		rule, said = s.rule+"_on", Statement{Sentence: s.on, Witness: s.refused}
		with, without = b, a
	}
	if s.idle(with, without) {
		rule, said = "password.no_effect", Statement{Sentence: s.noEffect}
	}
	said.Path, said.Old, said.New = "/"+s.member, raw(old), raw(now)
	c.add(rule, said)
}

// loginAcceptsNone reports whether the check of strength refuses every log-in.
func (p passwordState) loginAcceptsNone() bool {
	return p.members[validateOnLogin] == true && p.strength.acceptsNone()
}

// loginLocksOut reports whether nobody's password passes the check of strength at log-in.
func (p passwordState) loginLocksOut() bool {
	return p.members[validateOnLogin] == true && p.strength.locksOut()
}

// strengthChanged makes one statement of the three members, as they work together.
func (c *collector) strengthChanged(a, b passwordState) {
	s, t := a.strength, b.strength
	said := strengthSentence(a, b)
	if said.Sentence == "" {
		return
	}
	if s.check == unknownCheck || t.check == unknownCheck {
		c.add("password.strength_unknown", said)
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
	c.add(rule, said)
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
