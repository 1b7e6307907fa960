// Package redact takes values out of JSON bodies, or puts keyed hashes in their
// place, and leaves every other byte as it was.
//
// It serves to keep personal data from a destination, so it rather takes too
// much than too little, and rather fails than guesses: a body that is no JSON
// to its end, that nests deeper than [jsonscan.MaxDepth], or that has a name
// whose text cannot be told where a pointer leads by, is an error.
package redact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"sync"

	"github.com/auditrelay/auditrelay/internal/jsonpointer"
	"github.com/auditrelay/auditrelay/internal/wire/jsonscan"
)

// Rules say what is taken out of which place. They are immutable, but for a
// pool, and may be used by several goroutines.
type Rules struct {
	root *node
	macs sync.Pool // of hash.Hash
}

// New reads JSON pointers (RFC 6901). A step that is "*" stands for each element
// of an array and each member of an object. What remove names is taken out: a
// member with its name, and of an element null stays, so that the others keep
// their places. What hash names is replaced by "hmac-sha256:HEX", see [Rules.Apply].
// Where both name a value, or one a value around it, more is taken: what is
// removed is not hashed, and what is hashed whole is not looked into.
//
// An error names a pointer, and the column where it is wrong.
func New(remove, hash []string, key string) (*Rules, error) {
	if len(hash) > 0 && key == "" {
		return nil, errors.New("a key is required to hash with")
	}
	r := &Rules{root: &node{}}
	r.macs.New = func() any { return hmac.New(sha256.New, []byte(key)) }
	for action, texts := range [...][]string{actionRemove: remove, actionHash: hash} {
		for _, text := range texts {
			p, err := Parse(text)
			if err != nil {
				return nil, fmt.Errorf("pointer %q: %w", text, err)
			}
			r.root.add(p, uint8(action))
		}
	}
	r.root.spread()
	return r, nil
}

// Parse reads a pointer for [New]. Its error names the column.
func Parse(text string) (jsonpointer.Pointer, error) {
	p, err := jsonpointer.Parse(text)
	if err == nil && text == "" {
		err = errors.New("the empty pointer names the whole body; name what is in it, as in /user/email")
	}
	return p, err
}

// Apply returns body without what the rules take out of it. Where there is none
// of it, changed is false, and the result is body itself; else it is a new one:
// body is not written to.
//
// All members of an object that repeat a name are taken out, and a name is known
// by its text, however it is escaped. A hash is of a string's text, unescaped
// (of one that is no text, such as half of a surrogate pair, as it is written),
// and of any other value as it is written. The error holds nothing of the body.
func (r *Rules) Apply(body []byte) (redacted []byte, changed bool, _ error) {
	e := editor{rules: r, body: body}
	e.scan.Reset(body)
	if err := e.value(r.root); err != nil {
		return nil, false, err
	}
	if err := e.scan.End(); err != nil {
		return nil, false, err
	}
	if e.out == nil {
		return body, false, nil
	}
	return append(e.out, body[e.copied:]...), true, nil
}

const prefix = "hmac-sha256:"

// appendHash appends the JSON string that stands for raw, a JSON value.
func (r *Rules) appendHash(dst, raw []byte) []byte {
	text := raw
	if raw[0] == '"' {
		text = raw[1 : len(raw)-1]
		var s jsonscan.Scanner
		s.Reset(raw)
		if quoted, err := s.String(); err == nil && quoted.Escaped {
			if unescaped, err := quoted.AppendText(nil); err == nil {
				text = unescaped
			}
		}
	}
	mac, _ := r.macs.Get().(hash.Hash)
	defer r.macs.Put(mac)
	mac.Reset()
	_, _ = mac.Write(text) // never fails
	var sum [sha256.Size]byte
	dst = append(append(dst, '"'), prefix...)
	return append(hex.AppendEncode(dst, mac.Sum(sum[:0])), '"')
}
