package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/condition"
	"github.com/auditrelay/auditrelay/internal/jsonpointer"
)

// Match chooses events: all of the fields that are given have to fit. What is
// left out is acknowledged, and stays in the journal like everything else.
type Match struct {
	// Types, Projects and Environments are names, of which one has to fit; a
	// "*" stands for any characters, also for none. What concerns a whole
	// project has the environment "".
	Types        []string `yaml:"types"`
	Projects     []string `yaml:"projects"`
	Environments []string `yaml:"environments"`
	// CEL is an expression of the Common Expression Language (https://cel.dev)
	// that is true for what is to be delivered. It knows the texts id, source,
	// type, subject, project, environment and raw, the body as received; the
	// timestamps time and received; labels, a map from a name to the list of
	// its values; and body, the JSON in it, which is null where it is no JSON.
	// An integer is an int, a larger one a uint, any other number a double; they
	// compare with each other.
	//
	// Where an expression fails for an event, as on a key that is not there
	// (test with has(), or write body.?key.orValue("")), or takes too much work,
	// the event is delivered, counted in auditrelay_sink_match_errors_total,
	// and now and then logged.
	CEL string `yaml:"cel"`
}

// Redact takes fields out of JSON bodies, each named by a JSON pointer (RFC
// 6901), such as /user/email or /sessions/*/ip: a "*" alone stands for each
// element of an array, and each member of an object. All other bytes of a body
// stay as they are. Of members that repeat a name all are taken. Texts that hold
// JSON are not looked into.
//
// An event whose body is no JSON cannot be redacted; it goes to the sink's dead
// letters, and not to the sink. The journal and the dead letters keep what came;
// a replay redacts again.
//
// Attributes and labels are not redacted. The id of an event that brings none is
// a hash of its body, without a key.
type Redact struct {
	// Remove takes the values out: members with their names; of an element of
	// an array, null stays.
	Remove []string `yaml:"remove"`
	// Hash replaces them by the text "hmac-sha256:HEX", an HMAC-SHA256 with HashKey:
	// of a string its text, of any other value the JSON as it is written. So
	// equal values stay equal, and who has the key can look for one.
	Hash []string `yaml:"hash"`
	// HashKey has at least 16 characters. With another key, equal values of
	// before and after differ.
	HashKey secret.Text `yaml:"hash_key"`
}

// minHashKey keeps hashes of what is easily guessed, such as addresses, from
// being found by trying keys.
const minHashKey = 16

func (k *checker) match(at string, m *Match) {
	if len(m.Types)+len(m.Projects)+len(m.Environments) == 0 && m.CEL == "" {
		k.warn(at, "has no effect: it chooses everything")
	}
	k.names(at+".types", m.Types)
	k.names(at+".projects", m.Projects)
	if m.CEL != "" {
		k.expression(at+".cel", m.CEL)
	}
}

// names checks that none is empty, which no type and no project is.
func (k *checker) names(at string, names []string) {
	for i, name := range names {
		k.required(fmt.Sprintf("%s[%d]", at, i), name)
	}
}

func (k *checker) expression(at, text string) {
	_, err := condition.Compile(text)
	var found condition.Errors
	switch {
	case errors.As(err, &found):
		for _, e := range found {
			k.fail(at, text, e.Error())
		}
	case err != nil:
		k.fail(at, text, err.Error())
	}
}

func (k *checker) redact(at string, r *Redact) {
	if len(r.Remove)+len(r.Hash) == 0 {
		k.warn(at, "has no effect: neither remove nor hash names anything")
	}
	named := map[string]string{}
	k.pointers(at+".remove", r.Remove, named)
	k.pointers(at+".hash", r.Hash, named)
	k.overlaps(at+".remove", r.Remove, named)
	k.overlaps(at+".hash", r.Hash, named)
	key := r.HashKey.Reveal()
	switch {
	case len(r.Hash) == 0 && key != "":
		k.warn(at+".hash_key", "has no effect without hash")
	case len(r.Hash) > 0 && key == "":
		k.secret(at+".hash_key", r.HashKey)
	case len(r.Hash) > 0 && len(key) < minHashKey:
		k.fail(at+".hash_key", nil, fmt.Sprintf("must have at least %d characters; make one with: openssl rand -hex 32", minHashKey))
	}
}

// pointers checks a list of them, and notes in named where each stands.
func (k *checker) pointers(at string, texts []string, named map[string]string) {
	for i, text := range texts {
		path := fmt.Sprintf("%s[%d]", at, i)
		_, err := jsonpointer.Parse(text)
		before, twice := named[text]
		switch {
		case err != nil:
			k.fail(path, text, err.Error())
		case text == "":
			k.fail(path, nil, "names the whole body; name what is in it, as in /user/email")
		case twice:
			k.fail(path, text, "is named by "+before+" already; remove one")
		default:
			named[text] = path
		}
	}
}

// overlaps warns of pointers into what another one takes whole.
func (k *checker) overlaps(at string, texts []string, named map[string]string) {
	for i, text := range texts {
		for end := strings.LastIndexByte(text, '/'); end > 0; end = strings.LastIndexByte(text[:end], '/') {
			if around, taken := named[text[:end]]; taken {
				k.warn(fmt.Sprintf("%s[%d]", at, i), "has no effect: "+around+" takes all that is around it")
				break
			}
		}
	}
}
