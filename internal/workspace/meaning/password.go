package meaning

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
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
	case "LUDS", "ZXCVBN":
		return fmt.Sprint(v)
	}
	return visible(string(jsontext.Encode(v)), maxText)
}

// check is a kind of check of a password's strength.
type check int

const (
	unknownCheck check = iota
	// luds counts characters and classes of them: lower case, upper case, digits, symbols.
	luds
	// zxcvbn estimates guesses. The document names no threshold; it is taken to be the
	// score 3 of 4, as zxcvbn's authors advise.
	zxcvbn
)

const (
	// zxcvbnShortest is the length of the shortest password accepted by zxcvbn: it
	// reckons 10^n guesses for n random characters, and score 3 needs more than 10^8.
	zxcvbnShortest = 9
	classes        = 4
	// longest is the length of the longest password that may be demanded: whoever keeps
	// passwords has to take 64 characters, and need not take more (NIST SP 800-63B).
	longest = 64
)

// strength is the set of accepted passwords. A password is a length, a number of classes,
// and whether it is random or has a pattern. zxcvbn accepts the random ones from a length
// on, luds knows only length and classes.
type strength struct {
	check   check
	length  int // the least, for luds
	classes int // the least, for luds
}

// readStrength reads the three members of the check.
func readStrength(config map[string]any) strength {
	var s strength
	switch config["validation_policy"] {
	case "ZXCVBN":
		s.check = zxcvbn
	case "LUDS":
		length, ok := integer(config["luds_min_password_length"])
		complexity, also := integer(config["luds_min_password_complexity"])
		if ok && also {
			s.check, s.classes = luds, max(complexity, 1)
			s.length = max(length, s.classes) // k classes need k characters
		}
	}
	return s
}

func integer(v any) (int, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 32)
	return int(n), err == nil
}

func (s strength) acceptsNone() bool { return s.check == luds && s.classes > classes }

// locksOut reports whether hardly any password that people have is accepted.
func (s strength) locksOut() bool { return s.acceptsNone() || s.check == luds && s.length > longest }

func (s strength) acceptsAll() bool { return s.check == luds && s.length <= 1 && s.classes <= 1 }

// example is a password, or a description of many.
type example struct {
	length, classes int
	random          bool
}

// beyond returns a password accepted by s and refused by other, if there is one. Both
// checks are known.
func (s strength) beyond(other strength) (example, bool) {
	switch {
	case s.acceptsNone():
		return example{}, false
	case s.check == luds && other.check == luds:
		refused := other.acceptsNone() || s.length < other.length || s.classes < other.classes
		return example{s.length, s.classes, false}, refused
	case s.check == luds: // a pattern of any length is guessed
		return example{s.length, s.classes, false}, true
	case other.check == zxcvbn:
		return example{}, false
	}
	// Among zxcvbn's random passwords, luds refuses those of too few classes, and the
	// short ones.
	return example{zxcvbnShortest, 1, true}, other.classes > 1 || other.length > zxcvbnShortest
}

func (e example) String() string {
	size := fmt.Sprintf("%s, %s", plural(e.length, "character", "characters"), plural(e.classes, "class", "classes"))
	if e.random {
		return "a random password (" + size + ")"
	}
	// As many classes as there must be, then filled up.
	password := "A1!"[:min(max(e.classes-1, 0), 3)]
	password += strings.Repeat("a", min(max(e.length-len(password), 0), 2*maxName))
	return quote(password) + " (" + size + ")"
}

var passwordRules = []Rule{
	{"password.strength_weaker", Weaker, High, "Passwords are accepted that were too weak before.", "Weak passwords are guessed."},
	{"password.strength_stronger", Stronger, Low, "Weak passwords are refused that were accepted before.", "Less is permitted."},
	{"password.strength_mixed", Mixed, Medium, "Random passwords are accepted that were refused before, and weak ones are refused.", "Random passwords are hard to guess."},
	{"password.strength_traded", Mixed, High, "Weak passwords are accepted that were refused before, and others are refused.", "Raising one demand does not make up for lowering another."},
	{"password.strength_unknown", Unknown, High, "The check of strength changed to or from one that no rule knows.", "It may accept anything."},
	{"password.no_effect", Neutral, Info, "A number changed that is not in force, or makes no difference.", "The same passwords are accepted."},
	{"password.lockout", Stronger, High, "No password meets the rules: LUDS knows four classes of characters, and hardly anybody has a password of more than 64 characters.", "Users and administrators are locked out, perhaps by an attacker."},
	{"password.breach_check_off", Weaker, High, "Passwords known from breaches are accepted.", "Attackers try such passwords first."},
	{"password.breach_check_on", Stronger, Low, "Passwords known from breaches are refused.", "Less is permitted."},
	{"password.validation_off", Weaker, Medium, "Existing passwords are no longer held against the check of strength at log-in.", "Old weak passwords stay in use."},
	{"password.validation_on", Stronger, Low, "Existing passwords are held against the check of strength at log-in.", "Less is permitted."},
	{"password.switch_unknown", Unknown, Medium, "A switch is neither true nor false.", "What the service makes of it is not known."},
}
