package proof

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// MaxSize is the largest readable tree, in leaves. Above 2^62 the arithmetic of package
// tlog overflows, and it never returns.
const MaxSize = 1 << 60

// Checkpoint is the state of a log: https://c2sp.org/tlog-checkpoint. A log signs it as
// the text of a note.
type Checkpoint struct {
	// Origin names the log.
	Origin string
	// Size counts the leaves of its tree.
	Size int64
	// Root is the tree's Merkle hash (RFC 6962).
	Root tlog.Hash
	// Extensions are further lines, without their line ends; none is empty.
	Extensions []string
}

// String is the text of the note.
func (c Checkpoint) String() string {
	text := fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
	for _, line := range c.Extensions {
		text += line + "\n"
	}
	return text
}

// ParseCheckpoint reads the text of a note. It checks no signature: see [Policy.Open].
func ParseCheckpoint(text string) (Checkpoint, error) {
	body, ended := strings.CutSuffix(text, "\n")
	lines := strings.Split(body, "\n")
	if !ended || len(lines) < 3 || slices.Contains(lines, "") {
		return Checkpoint{}, errors.New("parse checkpoint: it is not at least three lines, none of them empty")
	}
	size, err := ParseDecimal(lines[1])
	if err != nil {
		return Checkpoint{}, fmt.Errorf("parse checkpoint: its size: %w", err)
	}
	if size > MaxSize {
		return Checkpoint{}, fmt.Errorf("parse checkpoint: its size is %d, more than the %d leaves readable by this version", size, int64(MaxSize))
	}
	root, err := ParseHash(lines[2])
	if err != nil {
		return Checkpoint{}, fmt.Errorf("parse checkpoint: its root: %w", err)
	}
	c := Checkpoint{Origin: lines[0], Size: size, Root: root}
	if len(lines) > 3 {
		c.Extensions = lines[3:]
	}
	return c, nil
}

// NoteText is the text of a signed note, with the end of its last line; empty where it has no
// signature. It checks none.
func NoteText(signed []byte) []byte { return signed[:bytes.LastIndex(signed, []byte("\n\n"))+1] }

// NoteOrigin is the first line of a note: of a checkpoint, the log that it says to be of.
func NoteOrigin(signed []byte) string {
	origin, _, _ := bytes.Cut(signed, []byte("\n"))
	return string(origin)
}

// ReadCheckpoint reads the text of a signed note. It checks no signature: see [Policy.Open].
func ReadCheckpoint(signed []byte) (Checkpoint, error) {
	text := NoteText(signed)
	if len(text) == 0 {
		return Checkpoint{}, errors.New("parse checkpoint: it has no signature")
	}
	return ParseCheckpoint(string(text))
}

// ParseDecimal reads a number from 0 to 2^63-1, without leading zeros or a sign.
func ParseDecimal(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, fmt.Errorf("%q is not a decimal number from 0 to 2^63-1", clipped(text))
	}
	return n, nil
}

// ParseHash reads 32 bytes of base64 (RFC 4648, section 4), in its one spelling.
func ParseHash(text string) (tlog.Hash, error) {
	var h tlog.Hash
	if len(text) != base64.StdEncoding.EncodedLen(tlog.HashSize) {
		return h, fmt.Errorf("%q is not the base64 of 32 bytes", clipped(text))
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != tlog.HashSize {
		return h, fmt.Errorf("%q is not the base64 of 32 bytes", text)
	}
	copy(h[:], raw)
	return h, nil
}

// clipped bounds foreign text in an error. A signing key is not shown: somebody took it for the
// public one.
func clipped(text string) string {
	const signing, most = "PRIVATE+KEY+", 80
	if before, _, found := strings.Cut(text, signing); found {
		text = before + signing + "…"
	}
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
