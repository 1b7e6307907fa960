package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"
)

const saltSize = 16

// Salt keeps the hashes of events from confirming a guess at an event, such as one of which a
// redacted copy shows everything except a telephone number. Each record has a random salt in
// its header, and each of its events a salt derived from it, so that knowing the salt of one
// event tells nothing about the others. A proof of one event gives its salt, and only whoever
// has a record can open the hashes of all its events.
//
// The salt is durable exactly as long as the record is, so the hashes are the same after a
// crash. Once the record is trimmed, nobody can guess at the events of which no proof was made.
type Salt [saltSize]byte

func newSalt() (s Salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// SaltOf returns the salt of a whole record, such as [DigestOf] has read.
func SaltOf(rec []byte) Salt { return Salt(rec[saltAt:headerSize]) }

// Event returns the salt of the event at a place in the record, counted from 0.
func (s Salt) Event(place int) Salt {
	salts := s.events()
	return salts.of(place)
}

// events derives the salts of a record's events.
func (s Salt) events() eventSalts {
	block, _ := aes.NewCipher(s[:]) // fails only for another size of key
	return eventSalts{block: block}
}

// eventSalts are the salts of the events of a record: AES-128 under the record's salt, of an
// event's place in the record, from 0, as a number of 16 bytes (big endian).
type eventSalts struct {
	block cipher.Block
	made  Salt // here, so that no call allocates
}

func (s *eventSalts) of(place int) Salt {
	s.made = Salt{}
	binary.BigEndian.PutUint64(s.made[saltSize-8:], uint64(place))
	s.block.Encrypt(s.made[:], s.made[:])
	return s.made
}

// Leaf returns the leaf of an event with this salt and this hash, from [HashOf]: the RFC 6962
// hash of the salt's 16 bytes and the 32 bytes of the hash.
func (s Salt) Leaf(hash tlog.Hash) tlog.Hash {
	var data [1 + saltSize + sha256.Size]byte // RFC 6962 begins a leaf with a zero
	copy(data[1:], s[:])
	copy(data[1+saltSize:], hash[:])
	return sha256.Sum256(data[:])
}

// Leaves returns the leaves of a record's events, whose hashes are given in their order.
func (s Salt) Leaves(hashes []tlog.Hash) []tlog.Hash {
	salts := s.events()
	leaves := make([]tlog.Hash, len(hashes))
	for i, hash := range hashes {
		leaves[i] = salts.of(i).Leaf(hash)
	}
	return leaves
}
