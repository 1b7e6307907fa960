package record

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrVersion is wrapped by the errors about a later version's records. Such records are
// sound: nothing sets them aside or passes over them.
var ErrVersion = errors.New("written by a later version of auditrelay")

// checkVersion tells a record of a later version from a damaged one: if the record is sound
// once the version byte is set to ours, a bit was flipped there.
func checkVersion(rec []byte) error {
	if len(rec) < len(magic) || string(rec[:3]) != magic[:3] {
		return nil
	}
	if rec[3] <= magic[3] || rec[3] > 'z' || soundAsOurs(rec) {
		return nil
	}
	return fmt.Errorf("%w: the record begins with %q, this version reads %q", ErrVersion, rec[:4], magic)
}

// soundAsOurs reports whether rec has the checksum of a record of our version.
func soundAsOurs(rec []byte) bool {
	if len(rec) < headerSize {
		return false
	}
	head := [16]byte(rec)
	copy(head[:], magic)
	return binary.LittleEndian.Uint64(rec[16:]) == checksum(head[:], rec[saltAt:])
}
