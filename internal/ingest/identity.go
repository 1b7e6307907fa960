package ingest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

	"github.com/auditrelay/auditrelay/internal/json/jsonscan"
	"github.com/auditrelay/auditrelay/internal/wire/datadog"
)

// The media types of bodies.
const (
	contentJSON = "application/json"
	contentText = "text/plain; charset=utf-8"
)

// contentType tells a JSON object by its ends; what is between is not read.
func contentType(body []byte) string {
	if n := len(body); n >= 2 && body[0] == '{' && body[n-1] == '}' {
		return contentJSON
	}
	body = bytes.TrimSpace(body)
	if n := len(body); n >= 2 && body[0] == '{' && body[n-1] == '}' {
		return contentJSON
	}
	return contentText
}

const (
	typePrefix = "event_log"
	hashPrefix = "hmac-" // says how the rest is made; earlier versions made "sha256-", without a key
	hashBytes  = 16      // of the digest that are in an ID, as hex
	maxAction  = 128     // bytes
)

// identify sets the event's ID and type, from the body's own event_id and
// action where it has them.
func (p *push) identify(isObject bool) {
	if isObject {
		jsonscan.Lookup(p.entry.Body, p.wanted[:])
	} else {
		p.wanted[0].Value, p.wanted[1].Value = jsonscan.Raw{}, jsonscan.Raw{}
	}
	p.typ = p.typ[:len(typePrefix)]
	if action := p.wanted[1].Value; isToken(action, maxAction) {
		p.typ = append(append(p.typ, '.'), action.Bytes...)
	}
	p.entry.Type = p.typ
	if id := p.wanted[0].Value; isVisible(id, datadog.MaxEventID) {
		p.entry.ID = id.Bytes
		return
	}
	p.entry.ID = p.hashID()
}

// hashID makes an ID of the source, the time and the body: an HMAC-SHA256, as the ID
// goes to sinks from which redaction keeps parts of the body. An ordinal in p.id
// tells apart what these do not.
func (p *push) hashID() []byte {
	var frame [16]byte // keeps the parts apart
	binary.LittleEndian.PutUint64(frame[:8], uint64(len(p.group.Source)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(p.entry.Time)) //nolint:gosec // its bits
	p.digest.Reset()
	p.head = append(append(p.head[:0], frame[:]...), p.group.Source...)
	p.digest.Write(p.head)
	p.digest.Write(p.entry.Body)
	p.digest.Write(p.id)
	sum := p.digest.Sum(p.sum[:0])
	p.id = hex.AppendEncode(append(p.id[:0], hashPrefix...), sum[:hashBytes])
	return p.id
}

func appendOrdinal(dst []byte, n int) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n)) //nolint:gosec // a count
}

// isVisible reports whether s is 1 to most visible ASCII characters: what every
// destination takes in a header as it is. One with escapes is not.
func isVisible(s jsonscan.Raw, most int) bool {
	if s.Escaped || !s.ASCII || len(s.Bytes) == 0 || len(s.Bytes) > most {
		return false
	}
	for _, c := range s.Bytes {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is 1 to most letters, digits, "_", "-", "." or ":".
func isToken(s jsonscan.Raw, most int) bool {
	if s.Escaped || len(s.Bytes) == 0 || len(s.Bytes) > most {
		return false
	}
	for _, c := range s.Bytes {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}
