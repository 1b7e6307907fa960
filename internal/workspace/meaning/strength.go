package meaning

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

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
