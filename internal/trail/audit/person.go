package audit

import (
	"strconv"
	"strings"
	"unicode"
)

// Person is somebody who asks for an action.
type Person struct {
	// User is the owner of the process that asked, as the kernel told the relay: the name of
	// UID, or "unknown" where a kernel tells nothing. Host is the relay's own, as the process
	// ran on it.
	User string  `json:"user"`
	Host string  `json:"host"`
	UID  *uint32 `json:"uid,omitempty"`
	// Claimed is who the process says it acts for, as USER@HOST: before sudo, for example.
	// Nobody has checked it. It is empty where it says what is known.
	Claimed string `json:"claimed,omitempty"`
}

// String is USER@HOST, and a claim marked as such.
func (p Person) String() string {
	text := p.User + "@" + p.Host
	if p.Claimed == "" {
		return text
	}
	claim := p.Claimed
	if strings.ContainsFunc(claim, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("@._-+", r)
	}) {
		claim = strconv.Quote(claim) // it ends where it ends, whatever is in it
	}
	return text + " (claims " + claim + ")"
}
