package proof

import (
	"errors"
	"fmt"
	"strings"
)

// maxPolicyNames bounds the witnesses and groups of a policy, and so how deep groups nest.
const maxPolicyNames = 1000

// ParsePolicy reads a policy file. An error names the line.
func ParsePolicy(text string) (Policy, error) {
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f }); i >= 0 {
		return Policy{}, fmt.Errorf("parse policy: it has the control character %q", text[i])
	}
	body, ended := strings.CutSuffix(text, "\n")
	if !ended {
		return Policy{}, errors.New("parse policy: its last line has no line end: it may be cut off")
	}
	r := policyReader{names: map[string]group{}, taken: map[string]bool{}}
	number := 0
	for line := range strings.SplitSeq(body, "\n") {
		number++
		if err := r.line(line); err != nil {
			return Policy{}, fmt.Errorf("parse policy: line %d: %w", number, err)
		}
	}
	if !r.quorum {
		return Policy{}, errors.New("parse policy: it has no line \"quorum NAME\"")
	}
	return r.policy, nil
}

// policyReader reads a policy line by line.
type policyReader struct {
	policy Policy
	names  map[string]group // defined so far
	taken  map[string]bool  // members of a group
	quorum bool
}

func (r *policyReader) line(line string) error {
	words := strings.FieldsFunc(line, func(c rune) bool { return c == ' ' || c == '\t' })
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	kind, words := words[0], words[1:]
	switch {
	case kind == "log" && (len(words) == 1 || len(words) == 2):
		return r.policy.addLog(Log{words[0], word(words, 1)})
	case kind == "witness" && (len(words) == 2 || len(words) == 3):
		if err := r.define(group{name: words[0], need: 1}); err != nil {
			return err
		}
		return r.policy.addWitness(Witness{words[0], words[1], word(words, 2)})
	case kind == "group" && len(words) >= 3:
		return r.group(words[0], words[1], words[2:])
	case kind == "quorum" && len(words) == 1:
		return r.setQuorum(words[0])
	}
	return fmt.Errorf("%q is none of: log KEY [URL], witness NAME KEY [URL], group NAME all|any|NUMBER NAME…, quorum NAME", clipped(line))
}

// word is the i-th word, or empty.
func word(words []string, i int) string {
	if i < len(words) {
		return words[i]
	}
	return ""
}

func (r *policyReader) define(g group) error {
	if _, defined := r.names[g.name]; defined || g.name == "none" {
		return fmt.Errorf("the name %q is taken", clipped(g.name))
	}
	if len(r.names) == maxPolicyNames {
		return fmt.Errorf("more than %d witnesses and groups", maxPolicyNames)
	}
	r.names[g.name] = g
	return nil
}

func (r *policyReader) group(name, need string, members []string) error {
	g := group{name: name}
	for _, member := range members {
		m, defined := r.names[member]
		if !defined {
			return fmt.Errorf("no line before it defines %q", clipped(member))
		}
		if r.taken[member] {
			return fmt.Errorf("%q is a member twice", clipped(member))
		}
		r.taken[member] = true
		g.members = append(g.members, m)
	}
	switch need {
	case "any":
		g.need = 1
	case "all":
		g.need = len(members)
	default:
		n, err := ParseDecimal(need)
		if err != nil || n < 1 || n > int64(len(members)) {
			return fmt.Errorf("%q is not all, any, or a number from 1 to %d", clipped(need), len(members))
		}
		g.need = int(n)
	}
	return r.define(g)
}

func (r *policyReader) setQuorum(name string) error {
	g, defined := r.names[name]
	if !defined && name != "none" {
		return fmt.Errorf("no line before it defines %q", clipped(name))
	}
	if r.quorum {
		return errors.New("it is the second quorum")
	}
	r.policy.quorum, r.quorum = g, true
	return nil
}
