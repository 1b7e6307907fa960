package witness

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

const (
	// MaxRequest bounds a request's body, in bytes: a proof takes 3 KB, and a signature of
	// the longest kind 3.3 KB.
	MaxRequest = 64 << 10
	// maxProof is the most hashes of a consistency proof.
	maxProof = 63
	// Path is where a witness takes checkpoints, below its submission prefix.
	Path = "/add-checkpoint"
	// SizeType is the media type of an answer with the size of the tree cosigned last.
	SizeType = "text/x.tlog.size"
)

// Request asks for a cosignature: the body of add-checkpoint in https://c2sp.org/tlog-witness.
type Request struct {
	// Old is the size of the tree cosigned last.
	Old int64
	// Proof proves the old tree to begin the checkpoint's tree (RFC 6962, section 2.1.2).
	Proof []tlog.Hash
	// Checkpoint is a signed note.
	Checkpoint []byte
}

// Marshal gives the body's bytes.
func (r Request) Marshal() []byte {
	body := fmt.Appendf(nil, "old %d\n", r.Old)
	for _, h := range r.Proof {
		body = fmt.Appendf(body, "%s\n", base64.StdEncoding.EncodeToString(h[:]))
	}
	return append(append(body, '\n'), r.Checkpoint...)
}

// ParseRequest reads a body. It does not examine the checkpoint.
func ParseRequest(body []byte) (Request, error) {
	line, rest, _ := bytes.Cut(body, []byte("\n"))
	number, ok := bytes.CutPrefix(line, []byte("old "))
	old, err := proof.ParseDecimal(string(number))
	if !ok || err != nil {
		return Request{}, errors.New(`the first line must be "old" and a size`)
	}
	r := Request{Old: old}
	for {
		var ended bool
		line, rest, ended = bytes.Cut(rest, []byte("\n"))
		switch {
		case !ended:
			return Request{}, errors.New("the empty line before the checkpoint is missing")
		case len(line) == 0:
			r.Checkpoint = rest
			return r, nil
		case len(r.Proof) == maxProof:
			return Request{}, fmt.Errorf("a proof has at most %d hashes", maxProof)
		}
		h, err := proof.ParseHash(string(line))
		if err != nil {
			return Request{}, fmt.Errorf("line %d of the proof is not the base64 of %d bytes", len(r.Proof)+1, tlog.HashSize)
		}
		r.Proof = append(r.Proof, h)
	}
}
